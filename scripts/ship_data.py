"""Makes the archives in data/: one per task, by ASCII-ME, with the policies of a few elites far apart.

    python scripts/ship_data.py
    python scripts/ship_data.py --tasks hopper_uni --evaluations 200000

A run that was stopped goes on: call it again after Ctrl-C. The whole runs stay in runs/ship.
"""

from pathlib import Path

import tyro

import asciime_gym as ag
from asciime_gym._process import prepare

LARGEST = 3_000_000  # bytes of a file that is shipped
SEED = 0


def run(task: str, evaluations: int, folder: Path, quiet: bool):
    """A run of ASCII-ME as it comes, from where its file stands."""
    path = folder / f"{task}.h5"
    new = lambda: ag.Optimizer(ag.AsciiME(), ag.make_task(task), seed=SEED)
    optimizer = ag.Optimizer.load(path) if path.exists() else new()
    if optimizer.evaluations < evaluations:
        result = optimizer.fit(evaluations=evaluations, checkpoint=path, progress=not quiet)
        if result.stopped_by == "interrupt":
            raise SystemExit(f"stopped at {optimizer.evaluations:,} evaluations of {task}; call again to go on")


def ship(task: str, policies: int, folder: Path, data: Path) -> Path:
    """The small file of a run, if it is small."""
    whole, draft, path = folder / f"{task}.h5", folder / f"{task}_small.h5", data / f"{task}.h5"
    archive = ag.shrink(whole, draft, policies=policies, overwrite=True)
    if (size := draft.stat().st_size) >= LARGEST:
        raise SystemExit(f"{draft} has {size:,} bytes, {LARGEST:,} or more: keep fewer than {policies} --policies")
    draft.unlink()
    ag.shrink(whole, path, policies=policies, overwrite=True)
    print(f"{path}: {size / 1e6:.2f} MB of {whole.stat().st_size / 1e6:,.1f} MB, {archive}", flush=True)
    return path


def main(
    tasks: tuple[str, ...] = ag.TASKS,
    evaluations: int = 100_000,
    policies: int = 96,
    folder: Path = Path("runs/ship"),
    data: Path = Path("data"),
    quiet: bool = False,
):
    """Runs what is missing, and writes the small files.

    Args:
        tasks: Names of tasks.
        evaluations: Budget of every run.
        policies: Elites of each archive whose policies are kept.
        folder: Where the whole runs are kept.
        data: Where the small files go.
        quiet: Show no progress.
    """
    prepare()
    if unknown := [task for task in tasks if task not in ag.TASKS]:
        raise SystemExit(f"unknown task {unknown[0]!r}; the tasks are {', '.join(ag.TASKS)}")
    for needed in (folder, data):
        needed.mkdir(parents=True, exist_ok=True)
    for task in tasks:
        run(task, evaluations, folder, quiet)
        ship(task, policies, folder, data)


if __name__ == "__main__":
    tyro.cli(main)
