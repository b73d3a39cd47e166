"""Settings of a whole process, for programs of ours; importing the library never touches them."""

import contextlib
import ctypes
import os
import sys
from pathlib import Path

import jax

from . import _programs

CACHE_SWITCH = "ASCIIME_CACHE"  # a folder for compiled programs, or "off"
# Parameters of glibc's `mallopt`, and what they are set to
MALLOC = {"M_MMAP_MAX": (-4, 0), "M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 2**26)}


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
    """Makes one JAX device per CPU core, and keeps memory, and compiled programs for the next process."""
    with contextlib.suppress(RuntimeError):  # the devices are there already: leave them
        jax.config.update("jax_num_cpu_devices", cores())
    keep_memory()
    keep_programs()


def keep_memory():
    """Has memory that was freed wait for the next device call, which needs as much again. A kernel that is given it
    back hands it out anew page by page, each of them zeroed."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):  # a C library without that
        library = ctypes.CDLL(None)
        for parameter, value in MALLOC.values():
            library.mallopt(parameter, value)


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
