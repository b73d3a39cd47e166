"""Algorithms side by side on tasks and seeds at equal evaluations: one table, made of files that are kept.

    python scripts/study.py --tasks walker2d_uni --algorithms map_elites pga_me dcrl_me --evaluations 10240
    python scripts/study.py --tasks hopper_uni walker2d_uni --seeds 0 --evaluations 25600 --batch-size suited

A run that is there already is not repeated, and one that was stopped goes on: call it again after Ctrl-C.
"""

from pathlib import Path
from typing import Literal

import tyro
from _suited import SUITED

import asciime_gym as ag
from asciime_gym._process import prepare


def run(task: str, name: str, batch_size: int | None, seed: int, evaluations: int, folder: Path, quiet: bool) -> Path:
    """One run's file, which holds all of its evaluations."""
    algorithm = SUITED[name](task) if batch_size is None else SUITED[name](task, batch_size=batch_size)
    path = folder / f"{task}_{name}_{algorithm.batch_size}_{seed}.h5"
    if path.exists():
        optimizer = ag.Optimizer.load(path)
    else:
        policy = type(algorithm).default_policy
        optimizer = ag.Optimizer(algorithm, ag.make_task(task, policy=policy), seed=seed)
    if optimizer.evaluations < evaluations:
        result = optimizer.fit(evaluations=evaluations, checkpoint=path, progress=not quiet)
        if result.stopped_by == "interrupt":
            raise SystemExit(f"stopped at {optimizer.evaluations:,} evaluations of {path.stem}; call again to go on")
    print(f"{path.stem}: {optimizer.archive}", flush=True)
    return path


def table(paths: list[Path]) -> str:
    """The runs in Markdown."""
    lines = [
        "| task | algorithm | batch | seed | evaluations | QD score | coverage | best | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for path in paths:
        archive, last = ag.load_archive(path), ag.load_history(path).last()
        task, algorithm, batch, seed = path.stem.rsplit("_", 2)[0], "", *path.stem.rsplit("_", 2)[1:]
        task, algorithm = next((name, task[len(name) + 1 :]) for name in ag.TASKS if task.startswith(f"{name}_"))
        figures = f"{archive.qd_score:,.0f} | {100 * archive.coverage:.1f} % | {archive.best().fitness:,.0f}"
        spent = f"{last['evaluations']:,} | {figures} | {last['seconds']:,.0f}"
        lines.append(f"| {task} | {algorithm} | {batch} | {seed} | {spent} |")
    return "\n".join(lines)


def main(
    tasks: tuple[str, ...] = ("walker2d_uni",),
    algorithms: tuple[str, ...] = tuple(SUITED),
    seeds: tuple[int, ...] = (0, 1, 2),
    evaluations: int = 10_240,
    batch_size: int | Literal["suited"] = 256,
    folder: Path = Path("runs/study"),
    small: Path | None = None,
    quiet: bool = False,
):
    """Runs what is missing, and prints the table.

    Args:
        tasks: Names of tasks.
        algorithms: Names of algorithms.
        seeds: A run of each algorithm on each task for each of these.
        evaluations: Budget of every run.
        batch_size: Of every algorithm, or "suited": what suits each on a CPU.
        folder: Where the runs are kept.
        small: Where a small file of each run is put, with the policy of its best elite, to draw and compare.
        quiet: Show no progress.
    """
    prepare()
    size = None if batch_size == "suited" else batch_size
    folder.mkdir(parents=True, exist_ok=True)
    order = [(task, name, seed) for seed in seeds for task in tasks for name in algorithms]
    paths = sorted(run(task, name, size, seed, evaluations, folder, quiet) for task, name, seed in order)
    if small is not None:
        small.mkdir(parents=True, exist_ok=True)
        for path in paths:
            ag.shrink(path, small / path.name, policies=1, overwrite=True)
    print(table(paths))


if __name__ == "__main__":
    tyro.cli(main)
