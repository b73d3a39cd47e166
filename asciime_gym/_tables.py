"""An archive's elites as tables: columns, an xarray dataset, a CSV file."""

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ._view import ArchiveView
else:
    ArchiveView = Any  # it imports this module

DESCRIPTIONS = {
    "cell": "cell of the archive that the elite lives in",
    "fitness": "fitness of the elite; the higher the better",
    "descriptor": "descriptor of the elite",
    "genotype": "flat policy parameters",
    "operator": "what made the elite",
    "evaluation": "evaluation, of its own run, at which the elite came in",
    "first_filled": "evaluation at which the elite's cell was first filled",
    "steps": "environment steps that the elite's episode lasted",
    "source": "which of several archives the elite came from: position in the attribute `sources`",
}


def columns(archive: ArchiveView, genotype: bool = False) -> dict[str, np.ndarray]:
    """One array per column, named as users of pyribs know them."""
    table: dict[str, np.ndarray] = {"cell": archive.cell, "objective": archive.fitness}
    table |= {f"measures_{d}": archive.descriptor[:, d] for d in range(len(archive.low))}
    table |= {name: getattr(archive, name) for name in _labels(archive)}
    if genotype:
        table |= {f"solution_{p}": archive.genotype[:, p] for p in range(archive.genotype.shape[1])}
    return table


def dataset(archive: ArchiveView) -> Any:
    """The elites as an `xarray.Dataset`, each variable with its description."""
    from .analysis._optional import xarray

    variables = {"fitness": ("elite",), "descriptor": ("elite", "dimension"), "genotype": ("elite", "parameter")}
    variables |= {name: ("elite",) for name in _labels(archive)}
    described = lambda name, dims: (dims, getattr(archive, name), {"description": DESCRIPTIONS[name]})
    attributes: dict[str, Any] = {  # plain numbers, strings and lists of them only, so that it can go to a file
        "qd_score": archive.qd_score,
        "coverage": archive.coverage,
        "cells": archive.cells,
        "descriptor_low": archive.low.tolist(),
        "descriptor_high": archive.high.tolist(),
    }
    if archive.source is not None:
        attributes["sources"] = list(archive.sources)
    for name in ("problem", "about"):
        if (value := getattr(archive, name)) is not None:
            attributes[name] = json.dumps(value, sort_keys=True)
    return xarray().Dataset(
        {name: described(name, dims) for name, dims in variables.items()},
        coords={"cell": described("cell", ("elite",)), "dimension": list(archive.descriptor_names)},
        attrs=attributes,
    )


def write_csv(path: str | os.PathLike, archive: ArchiveView, genotype: bool = False):
    """Writes the columns to a CSV file, which takes an old one's place only when it is complete."""
    from ._atomic import replacing

    with replacing(Path(path)) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns(archive, genotype))
        writer.writerows(_lines(archive, genotype))


def _labels(archive: ArchiveView) -> list[str]:
    """Columns that every table has beside fitness and descriptor."""
    return ["operator", "evaluation", "first_filled", "steps"] + ["source"] * (archive.source is not None)


def _lines(archive: ArchiveView, genotype: bool) -> Iterator[list[str]]:
    # NumPy's text of a float32 is the shortest that gives the same float32 back. So do nine digits, sooner,
    # for genotypes; one at a time, because all of them as text would be many times the archive.
    table = zip(*(column.astype(str).tolist() for column in columns(archive).values()), strict=True)
    for line, row in zip(table, archive.genotype, strict=True):
        yield [*line, *(f"{value:.9g}" for value in (row.tolist() if genotype else ()))]
