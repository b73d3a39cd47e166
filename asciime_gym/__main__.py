"""The command line: `asciime run`, `resume`, `info`, `tasks`, `plot`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from . import _files
from ._fit import Result
from ._flags import algorithm_from, flags_of
from ._optimizer import Optimizer
from ._process import prepare
from ._storage import FileError
from .algorithms import ALGORITHMS
from .tasks.locomotion import BACKENDS, ROBOTS, TASKS, make_task

_CONSOLE = Console()
if TYPE_CHECKING:
    AlgorithmName = TaskName = Backend = str
else:  # flags that accept these words only
    AlgorithmName, TaskName, Backend = Literal[tuple(ALGORITHMS)], Literal[TASKS], Literal[BACKENDS]
File = Annotated[Path, tyro.conf.Positional]


def _run_command(name: str) -> type:
    """The command `run` with the flags of one algorithm."""
    flags = flags_of(ALGORITHMS[name])

    @dataclasses.dataclass
    class Run:
        """Fill an archive, and save it.

        The flags of the algorithm's hyperparameters follow its choice: `asciime run --algorithm map_elites --help`.
        Ctrl-C saves and shows what there is; a second one gives up.
        """

        algorithm: AlgorithmName = "ascii_me"
        """Which method."""
        task: TaskName = "hopper_uni"
        """Which robot and descriptor; `asciime tasks` lists them."""
        evaluations: int | None = None
        """Stop after the generation at which this many episodes were spent (100000 where no budget is given)."""
        seconds: float | None = None
        """Stop after this much time, compilation aside."""
        seed: int = 0
        """The same seed gives the same archive."""
        out: Path | None = None
        """The HDF5 file to write; by default runs/TASK_ALGORITHM_SEED.h5."""
        overwrite: bool = False
        """Replace a file that holds another run."""
        checkpoint_every: int | None = None
        """Generations between saves; by default about a minute's worth."""
        centroids: int = 1024
        """Number of cells."""
        backend: Backend = "spring"
        """Brax's physics."""
        episode_length: int = 250
        """Steps after which an episode is cut off."""
        quiet: bool = False
        """Show no progress."""
        hyperparameters: tyro.conf.OmitArgPrefixes[flags] = dataclasses.field(default_factory=flags)  # type: ignore
        """Of the algorithm."""

        def __call__(self) -> int:
            algorithm = algorithm_from(ALGORITHMS[name], self.hyperparameters)
            task = make_task(
                self.task,
                backend=self.backend,
                episode_length=self.episode_length,
                policy=type(algorithm).default_policy,
            )
            out = self.out or Path("runs") / f"{self.task}_{name}_{self.seed}.h5"
            optimizer = Optimizer(algorithm, task, seed=self.seed, centroids=self.centroids)
            evaluations = 100_000 if self.evaluations is None and self.seconds is None else self.evaluations
            return _fit(optimizer, out, evaluations, self.seconds, self.checkpoint_every, self.quiet, self.overwrite)

    return Run


@dataclasses.dataclass
class Resume:
    """Go on with a run, exactly where its file stands."""

    file: File
    """The run's HDF5 file; it is written again."""
    evaluations: int | None = None
    """Stop after the generation at which this many episodes were spent in all, those in the file included."""
    seconds: float | None = None
    """Stop after this much time in all, compilation aside."""
    checkpoint_every: int | None = None
    """Generations between saves; by default about a minute's worth."""
    quiet: bool = False
    """Show no progress."""

    def __call__(self) -> int:
        optimizer = Optimizer.load(self.file)
        return _fit(optimizer, self.file, self.evaluations, self.seconds, self.checkpoint_every, self.quiet)


@dataclasses.dataclass
class Info:
    """Say what a file holds."""

    file: File
    """An HDF5 file of asciime_gym."""

    def __call__(self) -> int:
        info, archive = _files.file_info(self.file), _files.load_archive(self.file)
        algorithm, task, policy = info["algorithm"], info["task"], info["policy"]
        table = Table(title=str(self.file), show_header=False, title_justify="left")
        settings = ", ".join(f"{k}={v}" for k, v in algorithm.items() if k != "name")
        world = ", ".join(f"{k}={task[k]}" for k in ("backend", "episode_length") if k in task)
        last = _files.load_history(self.file).last()
        rows: dict[str, str] = {
            "algorithm": f"{algorithm['name']} ({settings})",
            "task": f"{task['name']} ({world})",
            "policy": ", ".join(f"{k}={v}" for k, v in policy.items()),
            "seed": str(info["seed"]),
            "written": f"{info['written']}, {info['bytes'] / 1e6:,.1f} MB",
            "versions": ", ".join(f"{k} {v}" for k, v in info["versions"].items()),
        }
        for key, value in (rows | _result_rows(archive, last)).items():
            table.add_row(key, value)
        _CONSOLE.print(table)
        return 0


@dataclasses.dataclass
class Tasks:
    """List the tasks."""

    def __call__(self) -> int:
        table = Table(title="Tasks", title_justify="left")
        for column in ("name", "what to do", "observation", "action", "parameters", "descriptor", "bounds"):
            table.add_column(column, justify="right" if column in ("observation", "action", "parameters") else "left")
        for name, robot in ROBOTS.items():
            task = make_task(name)
            bounds = f"[{task.descriptor_low[0]:g}, {task.descriptor_high[0]:g}]"
            meaning = f"contact rate, {len(robot.feet)} feet" if robot.feet else "final x, y in metres"
            meaning = meaning.replace("1 feet", "1 foot")
            sizes = (task.policy.obs_size, task.policy.act_size, task.policy.size)
            table.add_row(name, robot.about, *(f"{size:,}" for size in sizes), meaning, bounds)
        _CONSOLE.print(table)
        return 0


@dataclasses.dataclass
class Plot:
    """Draw an archive and its history."""

    file: File
    """An HDF5 file of asciime_gym."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """The picture (.png, .svg, .pdf); by default beside the file."""

    def __call__(self) -> int:
        from .analysis.plots import plot_run

        out = self.out or self.file.with_suffix(".png")
        plot_run(_files.load_archive(self.file), _files.load_history(self.file), out, title=self.file.stem)
        _CONSOLE.print(f"picture  {out}")
        return 0


def _fit(
    optimizer: Optimizer,
    out: Path,
    evaluations: int | None,
    seconds: float | None,
    checkpoint_every: int | None,
    quiet: bool,
    overwrite: bool = False,
) -> int:
    result = optimizer.fit(
        evaluations,
        seconds,
        progress=not quiet,
        checkpoint=out,
        checkpoint_every=checkpoint_every,
        overwrite=overwrite,
    )
    _show(optimizer, result, out)
    return 130 if result.stopped_by == "interrupt" else 0


def _show(optimizer: Optimizer, result: Result, out: Path):
    title = f"{optimizer.algorithm.name} on {optimizer.task.name}, seed {optimizer.seed}"  # type: ignore
    table = Table(title=title, show_header=False, title_justify="left")
    for key, value in _result_rows(result.archive, result.history.last()).items():
        table.add_row(key, value)
    stop = {"evaluations": "budget of evaluations", "seconds": "budget of seconds", "interrupt": "interrupt"}
    table.add_row("stopped by", stop.get(result.stopped_by, result.stopped_by))
    table.add_row("file", str(out))
    _CONSOLE.print(table)


def _result_rows(archive: Any, last: dict[str, Any]) -> dict[str, str]:
    rows = {
        "QD score": f"{archive.qd_score:,.0f}",
        "coverage": f"{100 * archive.coverage:.1f} % ({len(archive):,} of {archive.cells:,} cells)",
        "best": str(archive.best()) if len(archive) else "none",
    }
    if last:
        rate = last["evaluations"] / max(last["seconds"], 1e-9)
        rows["evaluations"] = f"{last['evaluations']:,} in {last['seconds']:,.1f} s ({rate:,.0f} a second)"
        rows["steps"] = f"{last['steps']:,}"
    return rows


def _chosen_algorithm(argv: Sequence[str]) -> str:
    """The algorithm named on the command line, whose flags are to be parsed; the default where none is."""
    for i, word in enumerate(argv):
        name = word.partition("=")[2] if word.startswith("--algorithm=") else ""
        if word == "--algorithm" and i + 1 < len(argv):
            name = argv[i + 1]
        if name in ALGORITHMS:
            return name
    return "ascii_me"


def main(argv: Sequence[str] | None = None) -> int:
    """Turns a simulated robot into an archive of many good ways to move."""
    words = list(sys.argv[1:] if argv is None else argv)
    commands = {
        "run": _run_command(_chosen_algorithm(words)),
        "resume": Resume,
        "info": Info,
        "tasks": Tasks,
        "plot": Plot,
    }
    prepare()
    command = tyro.extras.subcommand_cli_from_dict(
        commands, args=words or ["--help"], prog="asciime", description=main.__doc__
    )
    try:
        return command()
    except (FileError, OSError, ValueError, TypeError, ImportError) as error:
        print(f"asciime: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("asciime: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
