"""Refusals of hyperparameters that make no sense, in one voice."""

from typing import Any


def at_least(algorithm: Any, least: float, *fields: str):
    """Each field must be a finite number of at least `least`."""
    for field in fields:
        value = getattr(algorithm, field)
        if not least <= value < float("inf"):
            raise ValueError(f"{type(algorithm).__name__}: {field} must be at least {least}; got {value}")


def whole(algorithm: Any, *fields: str):
    """Each field must be a whole number of at least 1."""
    for field in fields:
        value = getattr(algorithm, field)
        if int(value) != value or value < 1:
            name = type(algorithm).__name__
            raise ValueError(f"{name}: {field} must be a whole number of at least 1; got {value}")


def between(algorithm: Any, low: float, high: float, *fields: str):
    """Each field must lie in [low, high]."""
    for field in fields:
        value = getattr(algorithm, field)
        if not low <= value <= high:
            raise ValueError(f"{type(algorithm).__name__}: {field} must be between {low} and {high}; got {value}")


def one_of(algorithm: Any, names: tuple[str, ...], field: str):
    """The field must be one of the names."""
    if getattr(algorithm, field) not in names:
        raise ValueError(
            f"{type(algorithm).__name__}: {field} must be one of {list(names)}; got {getattr(algorithm, field)!r}"
        )
