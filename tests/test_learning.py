"""Small real runs: that the algorithms do on the robots what the paper says they do."""

import pytest

import asciime_gym as ag

pytestmark = pytest.mark.slow


def run(task, evaluations, **fields) -> ag.ArchiveView:
    optimizer = ag.Optimizer(ag.AsciiME(**fields), task, seed=0)
    return optimizer.fit(evaluations=evaluations).archive


def test_ascii_spreads_an_ant_that_iso_line_cannot_move(tasks):
    both = run(tasks["ant_omni"], 6_000)
    alone = run(tasks["ant_omni"], 6_000, iso_line_share=1.0)
    assert both.coverage > 0.5
    assert alone.coverage < 0.01


def test_ascii_teaches_a_hopper_to_hop(tasks):
    archive = run(tasks["hopper_uni"], 10_000)
    assert archive.qd_score > 200_000 and archive.coverage > 0.7
    assert {"iso_line", "ascii"} <= set(archive.operator)
