"""The versions of what is installed."""

import importlib.metadata
import json

_STATED = ("asciime_gym", "jax", "brax", "equinox", "optax", "numpy", "h5py")


def version(package: str) -> str:
    """The version of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def versions() -> str:
    """What a file was written with, as JSON."""
    return json.dumps({name: version(name) for name in _STATED}, sort_keys=True)
