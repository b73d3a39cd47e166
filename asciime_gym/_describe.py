"""Algorithms, problems and policies as JSON, and back."""

import dataclasses
import json
from typing import Any

import numpy as np

from ._loop import AbstractAlgorithm
from ._policy import MLP, AbstractPolicy
from .algorithms import ALGORITHMS
from .tasks._task import AbstractProblem, Problem
from .tasks.locomotion import Locomotion, make_task

MOST_LAYERS = 64  # of a network that a file describes
_CHANGES = "to go on with what is given all the same, allow_changes=True"
CUSTOM = "custom"  # stands for an object of the user's own, which has to be handed over again


class DescriptionError(ValueError):
    """A description that does not make an object by itself."""


def describe_algorithm(algorithm: AbstractAlgorithm) -> str:
    fields = {f.name: _plain(getattr(algorithm, f.name)) for f in dataclasses.fields(algorithm)}
    return json.dumps({"name": algorithm.name, **fields}, sort_keys=True)


def describe_policy(policy: AbstractPolicy) -> str:
    if type(policy) is not MLP:  # what a class made of it does, a file cannot tell
        return json.dumps({"kind": CUSTOM, "type": type(policy).__name__, "size": policy.size})
    fields = {f.name: _plain(getattr(policy, f.name)) for f in dataclasses.fields(policy)}
    return json.dumps({"kind": "MLP", **fields}, sort_keys=True)


def describe_problem(problem: AbstractProblem) -> str:
    known: dict[str, Any] = {
        "kind": CUSTOM,
        "name": getattr(problem, "name", type(problem).__name__),
        "descriptor_low": problem.descriptor_low,
        "descriptor_high": problem.descriptor_high,
        "episode_length": problem.episode_length,
    }
    if isinstance(problem, Locomotion):
        known |= {"kind": "task", "backend": problem.backend, "lanes": problem.lanes}
    elif isinstance(problem, Problem):
        known |= {"kind": "problem"}
    if names := getattr(problem, "descriptor_names", None):
        known |= {"descriptor_names": names}
    return json.dumps(known, sort_keys=True)


def make_algorithm(
    description: str, given: AbstractAlgorithm | None = None, allow_changes: bool = False
) -> AbstractAlgorithm:
    """The algorithm that a description tells of; `given` by the caller is checked against it."""
    fields = json.loads(description)
    name = fields.pop("name")
    if given is not None:
        same_kind, same = given.name == name, describe_algorithm(given) == description
        if not same_kind or not (same or allow_changes):
            raise DescriptionError(
                f"the algorithm given differs from the stored one: stored {description}, given "
                f"{describe_algorithm(given)}; {_CHANGES}"
            )
        return given
    if name not in ALGORITHMS:
        raise DescriptionError(f"unknown algorithm {str(name)[:80]!r}; this version knows {', '.join(ALGORITHMS)}")
    if custom := [field for field, value in fields.items() if value == CUSTOM]:
        raise DescriptionError(
            f"{name} was run with {custom[0]} of the user's own, which a file cannot hold: hand the algorithm over "
            "again, Optimizer.load(path, algorithm=…)"
        )
    known = {field.name for field in dataclasses.fields(ALGORITHMS[name])}
    if fields.keys() != known:
        missing, unknown = sorted(known - fields.keys()), sorted(fields.keys() - known)
        raise DescriptionError(
            f"{name} has other hyperparameters in this version (not in the file: {missing}; only there: {unknown}): "
            "say what they shall be, Optimizer.load(path, algorithm=…, allow_changes=True)"
        )
    return ALGORITHMS[name](**fields)


def make_policy(description: str, given: AbstractPolicy | None = None) -> AbstractPolicy:
    """The policy that a description tells of; `given` by the caller is checked against it."""
    if given is not None:
        expected, size = json.loads(description), given.size
        if describe_policy(given) != description and (expected["kind"] != CUSTOM or expected["size"] != size):
            raise DescriptionError(f"the policy given differs from the stored one: stored {description}, given {given}")
        return given
    fields = json.loads(description)
    if len(fields.get("hidden", ())) > MOST_LAYERS:
        raise DescriptionError(f"the policy has more than {MOST_LAYERS} layers")
    kind = fields.pop("kind")
    if kind == CUSTOM:
        raise DescriptionError(
            f"the policy is a module of the user's own ({fields['type']}), which a file cannot hold: give it again, "
            "policy=… or task=…"
        )
    if kind != "MLP":
        raise DescriptionError(f"unknown kind of policy {str(kind)[:80]!r}; this version knows MLP")
    return MLP(**fields)


def make_problem(
    description: str, policy: AbstractPolicy, given: AbstractProblem | None = None, allow_changes: bool = False
) -> AbstractProblem:
    """The problem that a description tells of; `given` by the caller is checked against it."""
    if given is not None:
        if describe_problem(given) != description and not allow_changes:
            raise DescriptionError(
                f"the task given differs from the stored one: stored {description}, given {describe_problem(given)}; "
                f"{_CHANGES}"
            )
        return given
    fields = json.loads(description)
    if fields["kind"] == "task":
        options = {name: fields[name] for name in ("backend", "episode_length", "lanes")}
        return make_task(fields["name"], policy=lambda *_: policy, **options)
    if fields["kind"] == "problem":
        low, high = fields["descriptor_low"], fields["descriptor_high"]
        length = fields["episode_length"]
        return Problem(policy=policy, descriptor_low=low, descriptor_high=high, episode_length=length)
    raise DescriptionError(
        f"the task {fields['name']!r} is the user's own, which a file cannot hold: hand it over again, "
        "Optimizer.load(path, task=…)"
    )


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value
    if isinstance(value, (tuple, list)) and all(isinstance(item, (int, float)) for item in value):
        return list(value)
    return CUSTOM
