"""Libraries of the extra `analysis`, imported when first needed."""

import importlib
from typing import Any


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(
            f"this needs {package}, which is not installed: pip install 'asciime_gym[analysis]'"
        ) from error


def pandas() -> Any:
    return _need("pandas")


def pyplot() -> Any:
    """Matplotlib's pyplot."""
    return _need("matplotlib.pyplot")


def xarray() -> Any:
    return _need("xarray")
