"""Which OpenGL the pictures are drawn with, off screen.

MuJoCo decides that when it is imported, by an environment variable, and takes one that needs a screen where nothing is
said; Brax imports it long before anybody thinks of pictures. So its contexts are used directly. PyOpenGL serves one
kind of context per process and cannot be talked out of it, which is why a kind is first tried in another process.
"""

import functools
import importlib
import os
import platform
import subprocess
import sys
from typing import Any

SWITCH = "MUJOCO_GL"
KINDS = ("egl", "osmesa")  # on Linux, in the order in which they are tried
WORDS_FOR_OFF = ("disable", "disabled", "off", "false", "0")
WORDS_FOR_ANY = ("", "enable", "enabled", "on", "true", "1")
PATIENCE = 60  # seconds


class NoRenderer(RuntimeError):
    """There is nothing to draw with."""


def context(width: int, height: int) -> Any:
    """An off-screen OpenGL context: EGL, else OSMesa, or what the user has put into MUJOCO_GL."""
    kind = chosen()
    try:
        made = importlib.import_module(f"mujoco.{kind}").GLContext(width, height)
        made.make_current()
        return made
    except Exception as problem:  # whatever is wrong with a driver
        raise NoRenderer(_message(f"{kind}: {problem}")) from problem


def chosen() -> str:
    """The module of MuJoCo's that has the context; an error where nothing can draw."""
    asked = os.environ.get(SWITCH, "").strip().lower()
    if asked in WORDS_FOR_OFF:
        raise NoRenderer(f"{SWITCH}={asked} switches rendering off; unset it to draw pictures")
    if asked not in WORDS_FOR_ANY:
        return _first({"glx": "glfw", "wgl": "glfw"}.get(asked, asked))
    if platform.system() != "Linux":
        return "cgl" if platform.system() == "Darwin" else "glfw"
    return _first(*KINDS)


@functools.cache
def _first(*kinds: str) -> str:
    """The first that works."""
    problems = []
    for kind in kinds:
        problem = _trouble(kind)
        if problem is None:
            return kind
        problems.append(f"{kind}: {problem}")
    raise NoRenderer(_message("; ".join(problems)))


def _trouble(kind: str) -> str | None:
    """What is wrong with a kind of context, tried in a process of its own."""
    code = f"import mujoco.{kind} as gl; gl.GLContext(8, 8).make_current()"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else (lines or [f"exit code {done.returncode}"])[-1]


def _message(problems: str) -> str:
    return (
        f"no off-screen OpenGL to draw with ({problems}). Install Mesa's: `apt install libegl1 libegl-mesa0` (EGL), or "
        "`apt install libosmesa6` (OSMesa, which needs neither a screen nor a GPU); "
        f"and `pip install pyopengl` if that is what is missing. {SWITCH}=egl or {SWITCH}=osmesa insists on one of them"
    )
