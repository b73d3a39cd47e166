"""Quality-diversity optimization of neural policies for simulated robots."""

from . import analysis as analysis
from ._callbacks import CsvLog as CsvLog
from ._callbacks import TensorBoardLog as TensorBoardLog
from ._combine import merge as merge
from ._episodes import Episode as Episode
from ._episodes import Trajectories as Trajectories
from ._episodes import load_trajectories as load_trajectories
from ._files import load_archive as load_archive
from ._files import load_history as load_history
from ._films import render as render
from ._loop import AbstractAlgorithm as AbstractAlgorithm
from ._loop import Feedback as Feedback
from ._loop import Offspring as Offspring
from ._map_evaluator import MapEvaluator as MapEvaluator
from ._map_evaluator import map_evaluator as map_evaluator
from ._metrics import History as History
from ._minari import export_minari as export_minari
from ._optimizer import Optimizer as Optimizer
from ._policy import MLP as MLP
from ._policy import AbstractPolicy as AbstractPolicy
from ._policy import EquinoxPolicy as EquinoxPolicy
from ._policy import FlaxPolicy as FlaxPolicy
from ._reevaluate import Reevaluation as Reevaluation
from ._reevaluate import reevaluate as reevaluate
from ._shrink import shrink as shrink
from ._storage import FileError as FileError
from ._view import ArchiveView as ArchiveView
from .algorithms import ALGORITHMS as ALGORITHMS
from .algorithms import AsciiME as AsciiME
from .algorithms import DcrlME as DcrlME
from .algorithms import MapElites as MapElites
from .algorithms import Memes as Memes
from .algorithms import PgaME as PgaME
from .algorithms import Ppga as Ppga
from .analysis.explorer import explore as explore
from .tasks import _registration
from .tasks._descriptors import FinalObservation as FinalObservation
from .tasks._descriptors import MeanInfo as MeanInfo
from .tasks._descriptors import MeanPredicate as MeanPredicate
from .tasks._descriptors import Played as Played
from .tasks._pools import EnvironmentFailure as EnvironmentFailure
from .tasks._task import AbstractProblem as AbstractProblem
from .tasks._task import AbstractSimulator as AbstractSimulator
from .tasks._task import AbstractTask as AbstractTask
from .tasks._task import Evaluation as Evaluation
from .tasks._task import Problem as Problem
from .tasks._task import Trajectory as Trajectory
from .tasks.gymnasium_task import GymnasiumTask as GymnasiumTask
from .tasks.locomotion import TASKS as TASKS
from .tasks.locomotion import make_task as make_task

_registration.register()
