"""Archives for the explorer's tests, and what is in a page."""

import json
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
from made_runs import BOUNDS, NAMES, OPERATORS, centroids_of, rows_of

import asciime_gym as ag
from asciime_gym._archive import cvt_centroids
from asciime_gym._describe import describe_problem

HOSTILE = '</script><img src=x onerror="document.title=1"><!--<script>\u2028&amp;'


def made_archive(dims: int, cells: int = 64, fitness=None, names=None, operators=OPERATORS["ascii_me"]):
    """An archive without policies whose cells were filled one after the other, half of them again later."""
    low, high = BOUNDS[dims]
    rows = rows_of(cells, dims, fitness, operators=len(operators))
    filled = rows["fitness"] > -np.inf
    rows["first_filled"] = np.where(filled, 10 * np.cumsum(filled), -1).astype(np.int32)
    again = np.where(np.arange(cells) % 2, 5000, 0)
    rows["evaluation"] = np.where(filled, rows["first_filled"] + again, -1).astype(np.int32)
    return ag.ArchiveView(
        rows,
        centroids=centroids_of(cells, dims),
        low=np.full(dims, low, np.float32),
        high=np.full(dims, high, np.float32),
        operators=operators,
        policy=None,
        descriptor_names=tuple(names or NAMES.get(dims) or [f"contact rate of foot {i + 1}" for i in range(dims)]),
    )


def moving_archive(task: Any, cells: int, scale: float = 1.0) -> ag.ArchiveView:
    """A full archive of random policies that can be played; the last row is stored without its own."""
    keys = jax.random.split(jax.random.key(0), cells)
    genotype = np.array(jax.vmap(task.policy.init)(keys))
    random = np.random.default_rng(0)
    genotype += scale * random.normal(0, 0.3, genotype.shape).astype(np.float32)
    genotype[-1] = np.nan
    low, high = (np.float32(bound) for bound in (task.descriptor_low, task.descriptor_high))
    rows = {
        "genotype": genotype,
        "fitness": np.linspace(900, 100, cells, dtype=np.float32),
        "descriptor": cvt_centroids(cells, task.descriptor_low, task.descriptor_high),
        "operator": (np.arange(cells) % 3).astype(np.int32),
        "evaluation": np.arange(cells, dtype=np.int32),
        "first_filled": np.arange(cells, dtype=np.int32),
        "steps": np.full(cells, 250, np.int32),
        "key": np.asarray(jax.random.key_data(keys)),
    }
    return ag.ArchiveView(
        rows,
        centroids=rows["descriptor"],
        low=low,
        high=high,
        operators=OPERATORS["ascii_me"],
        policy=task.policy,
        descriptor_names=task.descriptor_names,
        problem=json.loads(describe_problem(task)),
    )


def data_of(path: Path) -> dict[str, Any]:
    """The data in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"), re.S)
    assert found is not None
    return json.loads(found[1])
