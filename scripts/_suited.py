"""The six algorithms as they suit a CPU: the table's batch where it fits, else the settings documented as small."""

from collections.abc import Callable
from typing import Any

import asciime_gym as ag

SUITED: dict[str, Callable[..., ag.AbstractAlgorithm]] = {
    "map_elites": lambda task, **fields: ag.MapElites(**fields),
    "ascii_me": lambda task, **fields: ag.AsciiME(**fields),
    "pga_me": lambda task, **fields: ag.PgaME(**_batch(fields)),
    "dcrl_me": lambda task, **fields: ag.DcrlME(**_batch(fields)),
    "memes": lambda task, **fields: ag.Memes.small(**fields),
    "ppga": lambda task, **fields: ag.Ppga.for_task(task, small=True, **fields),
}


def _batch(fields: dict[str, Any]) -> dict[str, Any]:
    return {"batch_size": 1024} | fields
