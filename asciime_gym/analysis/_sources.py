"""What pictures and comparisons are made of: runs, from files or from memory, sorted into groups."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import _files
from .._consistent import read_operators
from .._describe import describe_algorithm, describe_policy, describe_problem
from .._metrics import History
from .._optimizer import Optimizer
from .._reading import open_file
from .._untrusted import trusted
from .._view import ArchiveView
from ..tasks.locomotion import TASKS

ORDER = ("ascii_me", "map_elites", "pga_me", "dcrl_me", "memes", "ppga")  # of algorithms, in every table and legend
BY_BATCH = "by batch size"  # in the place of a value
_HEAD = ("history/", "archive/centroids")
_SAME = ("kind", "backend", "episode_length", "descriptor_low", "descriptor_high")  # what makes tasks of a name one


@dataclasses.dataclass
class Source:
    """One run, or one archive that is no run's."""

    name: str
    task: dict[str, Any]
    algorithm: dict[str, Any] | None
    seed: int | None
    history: History | None
    cells: int
    dims: int
    load: Callable[[], ArchiveView]
    policy: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, Any] = dataclasses.field(default_factory=dict)

    @cached_property
    def archive(self) -> ArchiveView:
        """The elites, read when first asked for; there is at least one."""
        archive = self.load()
        if not len(archive):
            raise ValueError(f"{self.name}: the archive is empty: there is nothing to draw yet")
        return archive

    @property
    def task_name(self) -> str:
        return str(self.task.get("name", "unknown"))

    @property
    def algorithm_name(self) -> str:
        """The algorithm, or where an archive is no run's the name of its file."""
        return str((self.algorithm or {}).get("name", self.name))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The hyperparameters of the algorithm, and of its policy."""
        return (self.algorithm or {}) | {f"policy {name}": value for name, value in self.policy.items()}

    @property
    def batch_size(self) -> int | None:
        size = self.settings.get("batch_size")
        return size if isinstance(size, int) else None

    @property
    def past(self) -> History:
        """The history; an error where there is none."""
        if self.history is None:
            raise ValueError(
                f"{self.name} has no history: it holds an archive, not a run; curves, operators, batch sizes and "
                "comparisons need runs, while map, slices, parallel and ccdf do not"
            )
        if not len(self.history):
            raise ValueError(f"{self.name}: the run has no generation yet")
        return self.history


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that differ in their seeds only."""

    task: str
    algorithm: str
    settings: tuple[tuple[str, Any], ...]  # hyperparameters that tell it from others of this algorithm and task
    members: tuple[Source, ...]

    @property
    def label(self) -> str:
        """`ascii_me`, or `ascii_me (batch_size=256)` where there are several."""
        return _label(self.algorithm, self.settings)

    @property
    def batch_size(self) -> int | None:
        return self.members[0].batch_size

    @property
    def label_without_batch_size(self) -> str:
        return _label(self.algorithm, [pair for pair in self.settings if pair[0] != "batch_size"])


def _label(algorithm: str, settings: Iterable[tuple[str, Any]]) -> str:
    told = ", ".join(f"{name}={value}" for name, value in settings)
    return f"{algorithm} ({told})" if told else algorithm


def read(files: Any) -> list[Source]:
    """Sources of files, archives or optimizers: one, or a sequence."""
    single = isinstance(files, (str, os.PathLike, ArchiveView, Optimizer))
    items = [files] if single else list(files)
    if not items:
        raise ValueError("no file was given; at least one is needed")
    return _together(_source, items)


def read_archives(sources: Sequence[Source]):
    """Reads the elites of all sources, several files at a time."""
    _together(lambda source: source.archive, sources)


def _together(work: Callable, items: Sequence[Any]) -> list[Any]:
    """The work done on each item. Files are parsed in processes of their own, so that threads are enough."""
    with ThreadPoolExecutor(max(1, min(len(items), os.cpu_count() or 1))) as pool:
        return list(pool.map(work, items))


def _source(item: Any) -> Source:
    if isinstance(item, (str, os.PathLike)):
        return _from_file(Path(item))
    if isinstance(item, Optimizer):
        archive = item.archive
        algorithm = json.loads(describe_algorithm(item.algorithm))
        task = json.loads(describe_problem(item.task))
        source = _of_archive(archive, f"run of seed {item.seed}", task, algorithm, item.seed, item.history.copy())
        source.policy = json.loads(describe_policy(item.task.policy))
        return source
    if isinstance(item, ArchiveView):
        task = item.problem or {}
        return _of_archive(item, str(task.get("name", "archive")), task)
    raise TypeError(f"expected files, archives or optimizers; got {type(item).__name__}")


def _of_archive(archive: ArchiveView, name: str, task: dict, algorithm=None, seed=None, history=None) -> Source:
    return Source(name, task, algorithm, seed, history, archive.cells, len(archive.low), lambda: archive)


def _from_file(path: Path) -> Source:
    """A file, parsed once for all but the elites."""
    with trusted(path, None, _HEAD) as file, open_file(file, "run", "archive") as reader:
        shape = reader.shape("archive/centroids")[0]
        if len(shape) != 2:
            raise reader.wrong("archive/centroids should have two axes")
        has_history = reader.has("history")
        return Source(
            name=path.name,
            task=reader.record("task"),
            algorithm=reader.record("algorithm") if reader.has("algorithm") else None,
            seed=reader.number("seed") if reader.has("seed") else None,
            history=_files._read_history(reader, read_operators(reader)) if has_history else None,
            cells=shape[0],
            dims=shape[1],
            load=lambda: _files.load_archive(path),
            policy=reader.record("policy"),
            versions=reader.record("versions"),
        )


def by_task(sources: Sequence[Source]) -> dict[str, list[Source]]:
    """Sources of each task; tasks of one name must be one task."""
    known = {name: place for place, name in enumerate(TASKS)}
    names = sorted({s.task_name for s in sources}, key=lambda name: (known.get(name, len(known)), name))
    tasks = {name: [source for source in sources if source.task_name == name] for name in names}
    for name, members in tasks.items():
        for what in ("cells", "dims", *_SAME):
            _one_value(name, what, members)
    return tasks


def _one_value(task: str, what: str, members: Sequence[Source]):
    of = lambda source: getattr(source, what) if what in ("cells", "dims") else source.task.get(what)
    words = {"cells": "number of cells", "dims": "length of their descriptors"}
    first = members[0]
    for other in members[1:]:
        if of(first) != of(other):
            raise ValueError(
                f"these files of {task} differ in the {words.get(what, what)}: {first.name} has {of(first)}, "
                f"{other.name} has {of(other)}; they cannot be put side by side, so give those of one kind only"
            )


def one_task(sources: Sequence[Source], what: str) -> str:
    """The one task of all sources."""
    tasks = by_task(sources)
    if len(tasks) > 1:
        first, second, *_ = tasks
        raise ValueError(
            f"{what} must be of one task: {tasks[first][0].name} is of {first}, {tasks[second][0].name} of {second}; "
            "draw each task by itself"
        )
    return next(iter(tasks))


def groups_of(sources: Sequence[Source]) -> list[Group]:
    """The runs of one task by algorithm and by whatever hyperparameters differ within it."""
    groups = []
    for algorithm in sorted({source.algorithm_name for source in sources}, key=place_of):
        members = [source for source in sources if source.algorithm_name == algorithm]
        varied = _varied(members)
        kinds: dict[str, list[Source]] = {}
        for source in members:
            kinds.setdefault(json.dumps([source.settings.get(name) for name in varied]), []).append(source)
        found = [
            Group(
                same[0].task_name, algorithm, tuple((name, same[0].settings.get(name)) for name in varied), tuple(same)
            )
            for same in kinds.values()
        ]
        groups += sorted(found, key=_settings_order)
    return groups


def along_batch_sizes(groups: Sequence[Group]) -> list[Group]:
    """Groups of one task as a series over batch sizes: settings that go with the batch size, as `PgaME.scaled` sets
    them, do not tell them apart."""
    found = []
    for group in groups:
        kin = [other for other in groups if other.algorithm == group.algorithm]
        if len({other.batch_size for other in kin}) == len(kin) > 1:  # one group for each
            settings = ((name, value if name == "batch_size" else BY_BATCH) for name, value in group.settings)
            group = dataclasses.replace(group, settings=tuple(settings))
        found.append(group)
    return found


def _varied(members: Sequence[Source]) -> list[str]:
    """The hyperparameters in which runs of one algorithm differ, the batch size first."""
    names = {name for source in members for name in source.settings}
    differ = lambda name: len({json.dumps(source.settings.get(name)) for source in members}) > 1
    return sorted(filter(differ, names), key=lambda name: (name != "batch_size", name))


def place_of(algorithm: str) -> tuple[int, str]:
    """Where an algorithm stands in tables and legends."""
    return (ORDER.index(algorithm) if algorithm in ORDER else len(ORDER), algorithm)


def _settings_order(group: Group) -> list[tuple[bool, float, str]]:
    """Numbers by size, before words."""
    number = lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
    return [(not number(v), float(v) if number(v) else 0.0, str(v)) for _, v in group.settings]


def refuse_twins(sources: Sequence[Source]):
    """A run counts once: the same seed under another name is no second sample."""
    seen: dict[str, Source] = {}
    for source in sources:
        task = {key: value for key, value in source.task.items() if key != "descriptor_names"}  # words, not the task
        identity = json.dumps([task, source.algorithm, source.seed], sort_keys=True)
        if source.algorithm is not None and identity in seen:
            raise ValueError(
                f"{seen[identity].name} and {source.name} hold the same run ({source.algorithm_name} on "
                f"{source.task_name}, seed {source.seed}); a run counts once, so leave one of them out"
            )
        seen[identity] = source
