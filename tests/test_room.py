"""A replay buffer is no larger than what was spent can fill, and no result depends on its size."""

import h5py
import jax
import pytest
from helpers import SMALL, Walk, same

import asciime_gym as ag

pytestmark = pytest.mark.slow
TASK = Walk()
LARGE = {**SMALL, "replay_size": 3000}
ALGORITHMS = [ag.PgaME(batch_size=24, **LARGE), ag.DcrlME(batch_size=24, **LARGE)]
EVALUATIONS = 120  # of 12 steps: less than 3000, which 1 generation fills to 288, 5 to 1440


def capacity(optimizer) -> int:
    return optimizer._run.state.memory.capacity


@pytest.fixture(scope="module", params=ALGORITHMS, ids=lambda algorithm: algorithm.name)
def straight(request) -> ag.Optimizer:
    optimizer = ag.Optimizer(request.param, TASK, centroids=64)
    optimizer.fit(evaluations=EVALUATIONS)
    return optimizer


def test_room_is_made_for_the_budget(straight):
    assert ag.Optimizer(straight.algorithm, TASK, centroids=64)._run.state.memory.capacity == 512
    assert capacity(straight) == 2048
    straight_count = int(straight._run.state.memory.count)
    assert 24 * 12 < straight_count <= EVALUATIONS * 12
    longer = ag.Optimizer(straight.algorithm, TASK, centroids=64)
    longer.fit(evaluations=24)
    assert capacity(longer) == 512
    longer.fit(evaluations=EVALUATIONS)
    assert same(longer._run, straight._run)
    longer.fit(evaluations=10 * EVALUATIONS)
    assert capacity(longer) == 3000 == int(longer._run.state.memory.count)


def test_a_file_has_room_for_what_was_spent(straight, tmp_path):
    first = ag.Optimizer(straight.algorithm, TASK, centroids=64)
    stop = lambda optimizer, row: row["evaluations"] < 48
    first.fit(evaluations=EVALUATIONS, callbacks=stop, checkpoint=tmp_path / "run.h5", checkpoint_every=1)
    assert capacity(first) == 2048
    with h5py.File(tmp_path / "run.h5") as file:
        assert len(file["state/memory/items/reward"]) == 1024
    first.save(tmp_path / "again.h5")
    for name in ("run.h5", "again.h5"):
        for untrusted in (False, True):
            resumed = ag.Optimizer.load(tmp_path / name, task=TASK, untrusted=untrusted)
            assert capacity(resumed) == 1024
        resumed.fit(evaluations=EVALUATIONS)
        assert same(resumed._run, straight._run)


def test_it_grows_as_it_is_told(straight):
    driven = ag.Optimizer(straight.algorithm, TASK, centroids=64)
    sizes = []
    while driven.evaluations < EVALUATIONS:
        genotypes = driven.ask()
        told = TASK.evaluate(genotypes, driven.evaluation_key, life=driven.life)
        driven.tell(told.fitness, told.descriptor, told.trajectory, told.steps)
        sizes.append(capacity(driven))
    assert sizes == [2048, 2048, 2048, 2048, 3000]  # four times what is needed, then all that it may have
    assert same(jax.tree.leaves(driven._run.archive), jax.tree.leaves(straight._run.archive))
    assert same(driven._run.state.learner, straight._run.state.learner)


def test_it_grows_where_only_time_is_budgeted(straight):
    timed = ag.Optimizer(straight.algorithm, TASK, centroids=64)
    stop = lambda optimizer, row: row["evaluations"] < EVALUATIONS
    sizes = []
    timed.fit(seconds=1000, callbacks=[lambda optimizer, row: sizes.append(capacity(optimizer)), stop])
    assert sizes == [2048, 2048, 2048, 2048, 3000]  # each of them is another program
    assert same(jax.tree.leaves(timed._run.archive), jax.tree.leaves(straight._run.archive))
    assert same(timed._run.state.learner, straight._run.state.learner)
