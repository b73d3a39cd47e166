"""One file per algorithm; `ALGORITHMS` is what the command line and stored files know them by."""

from .._loop import AbstractAlgorithm
from .ascii_me import AsciiME as AsciiME
from .dcrl_me import DcrlME as DcrlME
from .map_elites import MapElites as MapElites
from .memes import Memes as Memes
from .pga_me import PgaME as PgaME
from .ppga import Ppga as Ppga

ALGORITHMS: dict[str, type[AbstractAlgorithm]] = {
    cls.name: cls for cls in (MapElites, AsciiME, PgaME, DcrlME, Memes, Ppga)
}
