"""The command line: `asciime run`, `resume`, `info`, `export`, `tasks`, `plot`, `compare`, `render`, `explore`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import _files
from ._cli_analysis import Compare, Plot
from ._cli_explore import Explore
from ._cli_render import Render
from ._fit import Result
from ._flags import algorithm_from, flags_of
from ._minari import export_minari
from ._optimizer import Optimizer
from ._process import prepare
from ._shrink import shrink
from ._spread import first_process
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
        record_trajectories: Literal["elites", "all"] | None = None
        """Keep the episodes of all that enter the archive, or of everything, in files beside the output."""
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
            return _fit(optimizer, out, evaluations, self, overwrite=self.overwrite)

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
    record_trajectories: Literal["elites", "all"] | None = None
    """Keep the episodes of all that enter the archive from now on, or of everything, in files beside the run's."""
    quiet: bool = False
    """Show no progress."""

    def __call__(self) -> int:
        optimizer = Optimizer.load(self.file)
        return _fit(optimizer, self.file, self.evaluations, self)


@dataclasses.dataclass
class Info:
    """Say what a file holds."""

    file: File
    """An HDF5 file of asciime_gym."""

    def __call__(self) -> int:
        info, archive = _files.file_info(self.file), _files.load_archive(self.file)
        table = Table(title=str(self.file), show_header=False, title_justify="left")
        last = _files.load_history(self.file).last() if info["history"] else {}
        for key, value in (_about_rows(info) | _result_rows(archive, last)).items():
            table.add_row(key, _plain(value))
        _CONSOLE.print(table)
        return 0


@dataclasses.dataclass
class Export:
    """Write what a file holds in a form that other programs read."""

    file: File
    """An HDF5 file of asciime_gym."""
    csv: Path | None = None
    """Write the elites to this CSV file, one row each."""
    genotype: bool = False
    """Put the networks' parameters into the CSV file, too."""
    minari: str | None = None
    """Make a Minari dataset of this name (hopper-v0, say) of the recorded trajectories."""
    small: Path | None = None
    """Write a small file of ours, to hand round: archive and history, with the policies of some elites only."""
    policies: int = 96
    """How many policies the small file keeps, of elites far apart."""
    overwrite: bool = False
    """Replace a file that is in the small one's place."""

    def __call__(self) -> int:
        if self.csv is None and self.minari is None and self.small is None:
            raise ValueError("export needs a form: --csv FILE, --small FILE, --minari NAME-v0, or several of them")
        if self.csv is not None:
            archive = _files.load_archive(self.file)
            archive.to_csv(self.csv, genotype=self.genotype)
            _CONSOLE.print(f"elites   {len(archive):,} rows in {self.csv}")
        if self.small is not None:
            shrink(self.file, self.small, policies=self.policies, overwrite=self.overwrite)
            _CONSOLE.print(f"small    {self.small.stat().st_size / 1e6:,.2f} MB in {self.small}")
        if self.minari is not None:
            dataset = export_minari(self.file, self.minari)
            _CONSOLE.print(
                f"dataset  {self.minari}: {dataset.total_episodes:,} episodes, {dataset.total_steps:,} steps"
            )
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


def _fit(optimizer: Optimizer, out: Path, evaluations: int | None, flags: Any, overwrite: bool = False) -> int:
    result = optimizer.fit(
        evaluations,
        flags.seconds,
        progress=not flags.quiet,
        checkpoint=out,
        checkpoint_every=flags.checkpoint_every,
        overwrite=overwrite,
        record_trajectories=flags.record_trajectories,
    )
    _show(optimizer, result, out)
    if not _saved(optimizer, out):
        print(f"asciime: the end of the run is not saved in {out}; the warnings above say why", file=sys.stderr)
        return 1
    return 130 if result.stopped_by == "interrupt" else 0


def _saved(optimizer: Optimizer, out: Path) -> bool:
    """Whether the file holds all generations; of several processes only the first one writes, and knows."""
    try:
        return not first_process() or len(_files.load_history(out)) == optimizer.generation
    except FileError:
        return optimizer.generation == 0


def _plain(text: str) -> str:
    """A text from a file, without what a terminal would take for an instruction."""
    return escape("".join(letter if letter.isprintable() else "?" for letter in text))


def _about_rows(info: dict[str, Any]) -> dict[str, str]:
    """What a file says of itself, for people."""
    listed = lambda record, *leave: ", ".join(f"{k}={v}" for k, v in record.items() if k not in leave)
    task, rows = info["task"], {}
    if algorithm := info.get("algorithm"):
        rows["algorithm"] = f"{algorithm.get('name')} ({listed(algorithm, 'name')})"
    world = {key: task[key] for key in ("backend", "episode_length") if key in task}
    rows |= {"task": f"{task.get('name')} ({listed(world)})", "policy": listed(info["policy"])}
    if "seed" in info:
        rows["seed"] = str(info["seed"])
    if about := info.get("about"):
        rows["made by"] = listed(about)
    if parts := info["parts"]:
        episodes, steps = sum(part.episodes for part in parts), sum(part.steps for part in parts)
        rows["trajectories"] = f"{episodes:,} episodes of {steps:,} steps in {len(parts):,} files beside it"
    rows["written"] = f"{info['written']}, {info['bytes'] / 1e6:,.1f} MB, {info['format']}, schema {info['schema']}"
    return rows | {"versions": ", ".join(f"{k} {v}" for k, v in info["versions"].items()), "sha256": info["digest"]}


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
        "export": Export,
        "tasks": Tasks,
        "plot": Plot,
        "compare": Compare,
        "render": Render,
        "explore": Explore,
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
