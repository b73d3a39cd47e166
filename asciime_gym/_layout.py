"""What stands where in a file, in words: the descriptions, units and axes that a file explains itself with."""

from fnmatch import fnmatchcase
from typing import NamedTuple


class Entry(NamedTuple):
    """What is said of a dataset or group."""

    description: str
    axes: tuple[str, ...] = ()
    units: str = ""


LAYOUT = {
    "archive": Entry("the map of elites; row i of every dataset belongs to cell i"),
    "archive/cell": Entry("number of the cell", ("cell",)),
    "archive/dimension": Entry("what each dimension of the descriptor means", ("dimension",)),
    "archive/centroids": Entry("centre of each cell in descriptor space", ("cell", "dimension")),
    "archive/low": Entry("lower bound of the descriptor space", ("dimension",)),
    "archive/high": Entry("upper bound of the descriptor space", ("dimension",)),
    "archive/first_filled": Entry("at which the cell was first filled; -1: still empty", ("cell",), "evaluations"),
    "archive/elites": Entry("the individuals; a cell without one has fitness -inf"),
    "archive/elites/genotype": Entry(
        "flat policy parameters; the attribute `policy` of the file gives them meaning; NaN throughout: left out",
        ("cell", "parameter"),
    ),
    "archive/elites/fitness": Entry("undiscounted return of the elite's episode; -inf: the cell is empty", ("cell",)),
    "archive/elites/descriptor": Entry("descriptor of the elite's episode", ("cell", "dimension")),
    "archive/elites/operator": Entry(
        "what made it: position in the file's attribute `operators`; -1: empty", ("cell",)
    ),
    "archive/elites/evaluation": Entry("at which the elite came in; -1: empty", ("cell",), "evaluations"),
    "archive/elites/steps": Entry("that the elite's episode lasted", ("cell",), "environment steps"),
    "archive/elites/key": Entry("random key of the elite's episode, as key data", ("cell", "word")),
    "archive/elites/source": Entry(
        "which of the merged archives it came from: position in the file's attribute `about`; -1: empty", ("cell",)
    ),
    "archive/elites/keepsake": Entry("what the algorithm keeps of each elite's episode"),
    "archive/elites/keepsake/observation": Entry("what the elite saw; zero after the end", ("cell", "step", "entry")),
    "archive/elites/keepsake/reward_to_go": Entry("discounted future reward; zero after the end", ("cell", "step")),
    "state": Entry("the algorithm's own state, its buffer among it"),
    "state/items": Entry("the buffer: episodes of recent generations, one a row"),
    "state/items/observation": Entry("what the policy saw; zero after the end", ("episode", "step", "entry")),
    "state/items/action": Entry("what it did; zero after the end", ("episode", "step", "entry")),
    "state/items/reward": Entry("what it got; zero after the end", ("episode", "step")),
    "state/items/reward_to_go": Entry("discounted future reward; zero after the end", ("episode", "step")),
    "state/items/alive": Entry("1 up to the step that ends the episode, 0 after it", ("episode", "step")),
    "state/cursor": Entry("row of the buffer that is written next"),
    "state/count": Entry("rows of the buffer that are filled"),
    "history": Entry("one row per generation; evaluations, steps and seconds are totals"),
    "history/generation": Entry("number of the generation", ("generation",)),
    "history/evaluations": Entry("spent so far", ("generation",), "evaluations"),
    "history/steps": Entry("spent so far", ("generation",), "environment steps"),
    "history/seconds": Entry("spent so far, compilation aside", ("generation",), "s"),
    "history/qd_score": Entry("sum of fitness over filled cells", ("generation",)),
    "history/coverage": Entry("fraction of cells that are filled", ("generation",)),
    "history/max_fitness": Entry("the best elite's fitness; -inf while there is none", ("generation",)),
    "history/refused": Entry("rows of this generation that were not finite", ("generation",)),
    "history/added_*": Entry("rows of this generation, made by this operator, that entered", ("generation",)),
    "run": Entry("where the random numbers and the counters stand"),
    "run/key": Entry("random key of the seed, as key data", ("word",)),
    "run/generation": Entry("generations told so far"),
    "run/evaluations": Entry("spent so far", (), "evaluations"),
    "trajectories": Entry("the files beside this one that hold recorded episodes"),
    "trajectories/name": Entry("name of the file", ("part",)),
    "trajectories/digest": Entry("SHA-256 of its contents, as it states it itself", ("part",)),
    "trajectories/episodes": Entry("episodes in it", ("part",)),
    "trajectories/steps": Entry("steps in it", ("part",), "environment steps"),
    "trajectories/first": Entry("the first evaluation in it", ("part",), "evaluations"),
    "trajectories/last": Entry("the last evaluation in it", ("part",), "evaluations"),
    "steps": Entry("the alive steps of all episodes, one episode after the other"),
    "steps/observation": Entry("what the policy saw", ("step", "entry")),
    "steps/action": Entry("what it did", ("step", "entry")),
    "steps/reward": Entry("what it got", ("step",)),
    "episodes": Entry("the index: where each episode's steps are, and how it went"),
    "episodes/evaluation": Entry("number of the evaluation, as in archive/elites/evaluation", ("episode",)),
    "episodes/start": Entry("its first row in the datasets under steps", ("episode",)),
    "episodes/length": Entry("how many rows it has there", ("episode",), "environment steps"),
    "episodes/terminated": Entry("1: it ended by itself; 0: it was cut off", ("episode",)),
    "episodes/fitness": Entry("undiscounted return", ("episode",)),
    "episodes/descriptor": Entry("descriptor", ("episode", "dimension")),
    "episodes/operator": Entry("what made it: position in the attribute `operators` of the run's file", ("episode",)),
}
# The dataset that numbers an axis, and from whose group on it does.
SCALES = {
    "cell": "archive/cell",
    "dimension": "archive/dimension",
    "generation": "history/generation",
    "part": "trajectories/name",
}


def entry(name: str) -> Entry:
    """What is said of the dataset or group of this name."""
    if name in LAYOUT:
        return LAYOUT[name]
    for pattern, said in LAYOUT.items():
        if fnmatchcase(name, pattern):
            return said
    owner, _, leaf = name.rpartition("/")
    return Entry(f"{leaf.replace('_', ' ')} of {owner or 'the file'}: the algorithm's own")
