"""Pictures and comparisons of runs (extra `analysis`): `plot`, `compare`."""

from ._comparison import Comparison as Comparison
from ._comparison import compare as compare
from .plots import KINDS as KINDS
from .plots import plot as plot
