"""Quality-diversity optimization of neural policies for simulated robots."""

from ._files import load_archive as load_archive
from ._files import load_history as load_history
from ._loop import AbstractAlgorithm as AbstractAlgorithm
from ._loop import Feedback as Feedback
from ._loop import Offspring as Offspring
from ._metrics import History as History
from ._optimizer import Optimizer as Optimizer
from ._policy import MLP as MLP
from ._policy import AbstractPolicy as AbstractPolicy
from ._policy import EquinoxPolicy as EquinoxPolicy
from ._policy import FlaxPolicy as FlaxPolicy
from ._storage import FileError as FileError
from ._view import ArchiveView as ArchiveView
from .algorithms import ALGORITHMS as ALGORITHMS
from .algorithms import AsciiME as AsciiME
from .algorithms import MapElites as MapElites
from .tasks._task import AbstractProblem as AbstractProblem
from .tasks._task import AbstractSimulator as AbstractSimulator
from .tasks._task import AbstractTask as AbstractTask
from .tasks._task import Evaluation as Evaluation
from .tasks._task import Problem as Problem
from .tasks._task import Trajectory as Trajectory
from .tasks.locomotion import TASKS as TASKS
from .tasks.locomotion import make_task as make_task
