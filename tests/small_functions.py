"""Functions of one genotype, for executors that find them by name; other processes import this file without JAX."""

import os
import signal
import time
from pathlib import Path

import numpy as np


def square(genotype):
    """Fitness -|x|², descriptor the first two parameters; what comes first takes longest."""
    time.sleep(0.02 * (genotype[0] < 0.5))
    return -float(np.square(genotype).sum()), genotype[:2]


def fails_once(genotype, folder: str):
    """Raises the first time that it is given a genotype."""
    seen = Path(folder) / f"{genotype[0]:.6f}"
    if not seen.exists():
        seen.touch()
        raise OSError("not the first time")
    return square(genotype)


def moody(genotype):
    """Fails for some genotypes, each in its own way: the whole part of the first parameter says how."""
    how = int(genotype[0])
    if how == 1:
        raise ArithmeticError("it cannot be done")
    if how == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if how == 3:
        time.sleep(3600)
    if how == 4:
        os._exit(5)
    return square(genotype)


def slowly(genotype):
    time.sleep(0.3)
    return square(genotype)


def walk(genotype):
    """A trajectory of as many steps as the first parameter says."""
    steps = int(genotype[0])
    place = np.cumsum(np.full(steps, genotype[1]))
    path = {"observation": np.stack([place, np.arange(steps)], axis=1), "action": np.full((steps, 1), genotype[1])}
    return place[-1], [place[-1], steps], path | {"reward": np.ones(steps), "terminated": steps < 4}
