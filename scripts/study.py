"""Algorithms side by side on tasks and seeds at equal evaluations: one table, made of files that are kept.

    python scripts/study.py --tasks walker2d_uni --algorithms map_elites pga_me dcrl_me --evaluations 10240

A run that is there already is not repeated, and one that was stopped goes on: call it again after Ctrl-C.
"""

from pathlib import Path

import tyro

import asciime_gym as ag
from asciime_gym._process import prepare


def run(task_name: str, algorithm_name: str, batch_size: int, seed: int, evaluations: int, folder: Path) -> Path:
    """One run's file, which holds all of its evaluations."""
    path = folder / f"{task_name}_{algorithm_name}_{batch_size}_{seed}.h5"
    method = ag.ALGORITHMS[algorithm_name]
    make = getattr(method, "for_task", lambda _, **fields: method(**fields))
    if path.exists():
        optimizer = ag.Optimizer.load(path)
    else:
        task = ag.make_task(task_name, policy=method.default_policy)
        optimizer = ag.Optimizer(make(task_name, batch_size=batch_size), task, seed=seed)
    if optimizer.evaluations < evaluations:
        result = optimizer.fit(evaluations=evaluations, checkpoint=path)
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
    algorithms: tuple[str, ...] = ("map_elites", "ascii_me", "pga_me", "dcrl_me"),
    seeds: tuple[int, ...] = (0, 1, 2),
    evaluations: int = 10_240,
    batch_size: int = 256,
    batch_sizes: tuple[str, ...] = (),
    folder: Path = Path("runs/study"),
):
    """Runs what is missing, and prints the table.

    Args:
        tasks: Names of tasks.
        algorithms: Names of algorithms.
        seeds: A run of each algorithm on each task for each of these.
        evaluations: Budget of every run.
        batch_size: Of every algorithm that batch_sizes does not name.
        batch_sizes: Of single algorithms, memes=504 for example.
        folder: Where the runs are kept.
    """
    prepare()
    own = {name: int(size) for name, size in (word.split("=") for word in batch_sizes)}
    folder.mkdir(parents=True, exist_ok=True)
    order = [(task, name, seed) for seed in seeds for task in tasks for name in algorithms]
    paths = [run(task, name, own.get(name, batch_size), seed, evaluations, folder) for task, name, seed in order]
    print(table(sorted(paths)))


if __name__ == "__main__":
    tyro.cli(main)
