"""The main job of scripts/run: `asciime run`, then a picture of the archive."""

import sys
from pathlib import Path

from asciime_gym.__main__ import main

DEFAULTS = {"--algorithm": "ascii_me", "--task": "hopper_uni", "--seconds": "100", "--out": "runs/archive.h5"}


def arguments(given: list[str]) -> list[str]:
    """The options given, with defaults for those that were not; an evaluation budget replaces the time budget."""
    names = {word.partition("=")[0] for word in given}
    defaults = dict(DEFAULTS)
    if "--evaluations" in names:
        del defaults["--seconds"]
    if "--out" not in names:
        defaults["--overwrite"] = ""
    return [word for name, value in defaults.items() if name not in names for word in (name, value) if word] + given


def out_file(words: list[str]) -> Path:
    for i, word in enumerate(words):
        if word.startswith("--out="):
            return Path(word.partition("=")[2])
        if word == "--out":
            return Path(words[i + 1])
    raise AssertionError("arguments() always names a file")


if __name__ == "__main__":
    words = arguments(sys.argv[1:])
    code = main(["run", *words])
    if code in (0, 130) and "--help" not in words and "-h" not in words:
        code = main(["plot", str(out_file(words))]) or code
    sys.exit(code)
