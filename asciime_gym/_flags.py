"""Command-line flags made from an algorithm's fields, with the help that its docstring gives them."""

import dataclasses
import re
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import tyro

from ._loop import AbstractAlgorithm

_ITEM = re.compile(r"^\s*- ((?:`\w+`(?:, )?)+): (.*?)(?=^\s*- `|^\s*$|\Z)", re.MULTILINE | re.DOTALL)


def argument_help(docstring: str | None) -> dict[str, str]:
    """The text of each item in a docstring's list of arguments."""
    texts = {}
    for names, text in _ITEM.findall(docstring or ""):
        for name in re.findall(r"`(\w+)`", names):
            texts[name] = " ".join(text.split()).replace("`", "")
    return texts


def flags_of(algorithm: type[AbstractAlgorithm]) -> type:
    """A dataclass with the algorithm's fields, as flags."""
    texts, hints = argument_help(algorithm.__doc__), get_type_hints(algorithm)
    fields = []
    for field in dataclasses.fields(algorithm):
        kind = Annotated[_plain(hints[field.name]), tyro.conf.arg(help=texts.get(field.name, ""))]
        fields.append((field.name, kind, dataclasses.field(default=field.default)))
    return dataclasses.make_dataclass(f"{algorithm.__name__}Flags", fields)


def algorithm_from(algorithm: type[AbstractAlgorithm], flags: Any) -> AbstractAlgorithm:
    return algorithm(**{field.name: getattr(flags, field.name) for field in dataclasses.fields(flags)})


def _plain(kind: Any) -> Any:
    """A type without the alternatives that only a program can give (an optax transformation, say)."""
    if get_origin(kind) is None or type(None) in get_args(kind) or get_origin(kind) is not type(int | str):
        return kind
    kept = tuple(k for k in get_args(kind) if k in (int, float, str, bool))
    return Union[kept]  # noqa: UP007
