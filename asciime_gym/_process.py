"""Settings of a whole process, for programs of ours; importing the library never touches them."""

import contextlib
import os
from pathlib import Path

import jax

from . import _programs

CACHE_SWITCH = "ASCIIME_CACHE"  # a folder for compiled programs, or "off"


def cache_folder() -> Path | None:
    """Where compiled programs are kept between processes; `None` where that is switched off."""
    given = os.environ.get(CACHE_SWITCH, "")
    if given.lower() in ("off", "0", "no"):
        return None
    if given:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "asciime_gym" / "xla"


def prepare():
    """Makes one JAX device per CPU core, and keeps compiled programs for the next process."""
    with contextlib.suppress(RuntimeError):  # the devices are there already: leave them
        jax.config.update("jax_num_cpu_devices", cores())
    keep_programs()


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_programs():
    """Keeps programs in the user's cache folder, so that the next process need not trace and compile them again."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # no cache is no reason not to run
    # Loading a program logs, at length, each instruction set that the compiler considered; nobody can act on it.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    _programs.keep_in(folder)
