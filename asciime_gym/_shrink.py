"""The file of a run made small: what people look at, and the policies of a few elites."""

import os

from ._files import load_archive, load_origin, save_archive
from ._view import ArchiveView


def shrink(
    path: str | os.PathLike, out: str | os.PathLike, *, policies: int = 96, overwrite: bool = False
) -> ArchiveView:
    """Makes a small file of a run's, to hand round: `load_archive`, `load_history`, pictures, comparisons and, for the
    elites that keep their policies, films do with it what they do with the run. It cannot go on.

    **Arguments:**

    - `path`: the run's file.
    - `out`: the small one.
    - `policies`: elites that keep theirs: the best one, then each time the one farthest from those that do.
    - `overwrite`: even where `out` is there already; never the run itself.

    **Returns:** the archive in the small file.
    """
    if os.path.exists(out) and os.path.samefile(path, out):
        raise ValueError(f"{out} is the run itself, whose other policies would be lost; choose another name")
    origin = load_origin(path)
    archive = load_archive(path).thinned(policies)
    archive.about = {"made_by": "shrink", "policies": int(archive.has_policy.sum())}
    save_archive(out, archive, overwrite, origin)
    return archive
