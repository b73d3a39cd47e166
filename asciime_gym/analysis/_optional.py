"""Libraries of the extra `analysis`, imported when first needed."""

import importlib
from typing import Any


def need(module: str) -> Any:
    """A module of the extra, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(
            f"this needs {package}, which is not installed: pip install 'asciime_gym[analysis]'"
        ) from error


def pandas() -> Any:
    return need("pandas")


def pyplot() -> Any:
    """Matplotlib's pyplot."""
    return need("matplotlib.pyplot")


def xarray() -> Any:
    return need("xarray")
