"""The archive: a map of cells, each holding the best individual whose descriptor falls into it."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PyTree, UInt32

from ._overwrite import overwrite
from ._programs import kept_bytes

EMPTY = -1  # operator and evaluation numbers of an empty cell


class Elites(eqx.Module):
    """Individuals with what is remembered of each: the rows of an archive, or newcomers to it."""

    genotype: Float[Array, "rows params"]
    fitness: Float[Array, " rows"]  # -inf: an empty cell
    descriptor: Float[Array, "rows dims"]
    operator: Int[Array, " rows"]  # which operator made it
    evaluation: Int[Array, " rows"]  # the evaluation at which it came in
    steps: Int[Array, " rows"]  # how long its episode lasted
    key: UInt32[Array, "rows words"]  # of its episode, so that it can be replayed
    keepsake: PyTree  # what the algorithm wants kept beside it


class Archive(eqx.Module):
    """CVT cells and their elites.

    A newcomer needs strictly higher fitness than the elite of its cell; within a batch the best of a cell wins.
    Ties: lowest cell, then lowest row.
    """

    centroids: Float[Array, "cells dims"]
    low: Float[Array, " dims"]
    high: Float[Array, " dims"]
    elites: Elites
    first_filled: Int[Array, " cells"]  # the evaluation at which the cell was first filled

    @property
    def filled(self) -> Bool[Array, " cells"]:
        return self.elites.fitness > -jnp.inf

    def lookup(self, descriptor: Float[Array, "rows dims"]) -> Int[Array, " rows"]:
        """The cell of each descriptor: the nearest centroid, in units of the bounds, of the point clipped to them."""
        points, centroids = self._unit(descriptor), self._unit(self.centroids)
        # One dimension after the other: a [rows, cells, dims] array is never made.
        offsets = (points[:, None, d] - centroids[None, :, d] for d in range(self.low.size))
        distance = jax.lax.optimization_barrier(sum(offset**2 for offset in offsets))
        # The first of the nearest, as `argmin` finds it, but that takes a CPU eight times as long.
        is_nearest = distance == distance.min(axis=1, keepdims=True)
        return jnp.where(is_nearest, jnp.arange(len(centroids)), len(centroids) - 1).min(axis=1)

    def _unit(self, descriptor: Array) -> Array:
        return jnp.clip((descriptor - self.low) / (self.high - self.low), 0.0, 1.0)

    def add(
        self, newcomers: Elites, candidate: Bool[Array, " rows"]
    ) -> tuple["Archive", Bool[Array, " rows"], Float[Array, " rows"]]:
        """Offers newcomers, of which only candidates may enter.

        **Returns:** the new archive, which rows entered, and what each added to the QD score.
        """
        rows, cells = newcomers.fitness.size, self.first_filled.size
        finite = jnp.isfinite(newcomers.fitness) & jnp.isfinite(newcomers.descriptor).all(axis=1)
        candidate = candidate & finite
        # A row that may not enter is sent to a cell that does not exist, and bids for nothing.
        cell = jnp.where(candidate, self.lookup(newcomers.descriptor), cells)
        bid = jnp.where(candidate, newcomers.fitness, -jnp.inf)
        best = jnp.full(cells + 1, -jnp.inf).at[cell].max(bid)
        number = jnp.arange(rows)
        winner = jnp.full(cells + 1, rows).at[cell].min(jnp.where(bid == best[cell], number, rows))
        occupant = jnp.append(self.elites.fitness, jnp.inf)[cell]
        added = candidate & (winner[cell] == number) & (bid > occupant)
        gain = jnp.where(added, bid - jnp.where(occupant > -jnp.inf, occupant, 0.0), 0.0)

        first = jnp.where(occupant > -jnp.inf, self.first_filled[cell], newcomers.evaluation)
        elites, first_filled = overwrite((self.elites, self.first_filled), (newcomers, first), cell, added)
        return Archive(self.centroids, self.low, self.high, elites, first_filled), added, gain

    def sample(self, key: Key[Array, ""], count: int) -> Int[Array, " count"]:
        """Cells drawn uniformly from the filled ones, with replacement."""
        filled = self.filled
        order = jnp.argsort(~filled, stable=True)
        return order[jax.random.randint(key, (count,), 0, jnp.maximum(filled.sum(), 1))]


def empty_archive(
    centroids: Float[Array, "cells dims"], low: tuple[float, ...], high: tuple[float, ...], like: Elites
) -> Archive:
    """An archive without elites, whose rows will look like `like` (shapes suffice)."""
    cells = len(centroids)
    blank = jax.tree.map(lambda row: jnp.zeros((cells, *row.shape[1:]), row.dtype), like)
    elites = eqx.tree_at(
        lambda e: (e.fitness, e.operator, e.evaluation),
        blank,
        (jnp.full(cells, -jnp.inf, jnp.float32), jnp.full(cells, EMPTY, jnp.int32), jnp.full(cells, EMPTY, jnp.int32)),
    )
    bounds = jnp.asarray(low, jnp.float32), jnp.asarray(high, jnp.float32)
    return Archive(jnp.asarray(centroids, jnp.float32), *bounds, elites, jnp.full(cells, EMPTY, jnp.int32))


@functools.cache
def _unit_centroids(cells: int, dims: int) -> np.ndarray:
    """The same for every run that asks."""
    data = kept_bytes(f"centroids-{cells}-{dims}", lambda: _k_means(cells, dims).tobytes())
    return np.frombuffer(data, np.float64).reshape(cells, dims)


def _k_means(cells: int, dims: int) -> np.ndarray:
    """Centres of uniform samples of the unit cube, from a fixed seed."""
    from scipy.spatial import KDTree  # takes a while, and a start that finds centroids kept does not need it

    samples = np.random.default_rng(0).random((max(50_000, 8 * cells), dims))
    centroids = samples[:cells]
    for _ in range(25):
        nearest = KDTree(centroids).query(samples, workers=-1)[1]
        count = np.bincount(nearest, minlength=cells)[:, None]
        total = np.stack([np.bincount(nearest, column, cells) for column in samples.T], axis=1)
        centroids = np.where(count > 0, total / np.maximum(count, 1), centroids)  # one without samples stays
    return centroids[np.lexsort(centroids.T[::-1])]


def cvt_centroids(cells: int, low: tuple[float, ...], high: tuple[float, ...]) -> np.ndarray:
    """Centroidal Voronoi centroids; they depend on the number of cells, the dimensions and the bounds only."""
    if cells < 1:
        raise ValueError(f"an archive needs at least 1 cell; got centroids={cells}")
    low_, high_ = np.asarray(low), np.asarray(high)
    return (low_ + _unit_centroids(cells, len(low)) * (high_ - low_)).astype(np.float32)
