"""Comparisons: statistics with known answers, and cautions where they say little."""

import csv
import io
import itertools
import math

import numpy as np
import pytest
from helpers import Walk
from made_runs import write_run

import asciime_gym as ag
from asciime_gym import __main__ as command_line
from asciime_gym.analysis import _statistics as statistics
from asciime_gym.analysis import compare

pytest.importorskip("statsmodels")


# Statistics --------------------------------------------------------------------------------------------------


def by_all_deals(first, second) -> float:
    """Two-sided p by trying every way of dealing the values out: twice the smaller tail."""
    values, size = [*first, *second], len(first)
    u = lambda a, b: sum((x > y) + 0.5 * (x == y) for x in a for y in b)
    found = u(first, second)
    deals = []
    for chosen in itertools.combinations(range(len(values)), size):
        rest = [values[i] for i in range(len(values)) if i not in chosen]
        deals.append(u([values[i] for i in chosen], rest))
    tail = min(np.mean([deal >= found for deal in deals]), np.mean([deal <= found for deal in deals]))
    return min(1.0, 2 * float(tail))


@pytest.mark.parametrize(
    ("first", "second", "u", "p"),
    [
        ([4, 5, 6], [1, 2, 3], 9, 2 / 20),  # apart: one of 20 deals on either side
        ([1, 2, 3], [4, 5, 6], 0, 2 / 20),
        ([1, 3, 5], [2, 4, 6], 3, 14 / 20),  # 7 of 20 deals give U of 3 or less
        ([1, 2, 3, 4], [5, 6, 7, 8], 0, 2 / 70),
        ([1, 1, 2], [2, 3, 3], 0.5, 4 / 20),  # tied
        ([7, 7], [7, 7], 2, 1),
        ([-math.inf, 1, 2], [3, 4, 5], 0, 2 / 20),  # the best of an empty archive
    ],
)
def test_mann_whitney_by_hand(first, second, u, p):
    found = statistics.mann_whitney(first, second)
    assert found.u == u and found.p == pytest.approx(p) and found.method != "normal"
    assert by_all_deals(first, second) == pytest.approx(p)


def test_mann_whitney_by_all_deals():
    random = np.random.default_rng(0)
    for tied in (False, True):
        for sizes in ((1, 1), (1, 4), (2, 5), (4, 4), (3, 6)):
            a, b = ((random.integers(0, 4, n) if tied else random.normal(size=n)).tolist() for n in sizes)
            assert statistics.mann_whitney(a, b).p == pytest.approx(by_all_deals(a, b))


def test_large_samples():
    found = statistics.mann_whitney([1.0, 2.0] * 20, [2.0, 3.0] * 20)
    assert found.method == "normal" and found.p < 1e-6
    assert statistics.mann_whitney(list(range(20)), list(range(20, 40))).p == pytest.approx(2 / math.comb(40, 20))


def test_holm_by_hand():
    # Sorted: 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1 is 0.04, 0.06, 0.06, 0.04; none is below the one before.
    assert statistics.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert statistics.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0]) and statistics.holm([]) == []


def test_effect_sizes_by_hand():
    # Of nine pairs the first is larger in 5 (3 > 1, 4 > 1, 4 > 3, 5 > 1, 5 > 3) and equal in 2.
    assert statistics.vargha_delaney([3, 4, 5], [1, 3, 5]) == pytest.approx(6 / 9)
    assert statistics.vargha_delaney([1, 2], [3, 4]) == 0 and statistics.vargha_delaney([2], [2]) == 0.5
    assert statistics.cliffs_delta(0.75) == 0.5
    sizes = (0.5, 0.555, 0.56, 0.63, 0.64, 0.70, 0.71, 0.29, 0.44)
    words = ["negligible", "negligible", "small", "small", "medium", "medium", "large", "large", "small"]
    assert [statistics.magnitude(size) for size in sizes] == words


def test_what_can_be_significant_at_all():
    assert statistics.smallest_p(3, 3) == 0.1 and statistics.smallest_p(1, 1) == 1
    assert statistics.smallest_p(5, 5) == pytest.approx(2 / 252)
    assert statistics.smallest_p(4, 4) == statistics.mann_whitney([5, 6, 7, 8], [1, 2, 3, 4]).p
    assert statistics.seeds_needed(1, 0.05) == 4  # 2 of 70
    assert statistics.seeds_needed(15, 0.05) == 6  # 30 of 924
    assert statistics.seeds_needed(1, 0.1) == 4  # 2 of 20 is not below 0.1


def test_efficiency_by_hand():
    # QD scores 10, 30, 20 scale to 0, 1, 1/2; runtimes 100, 60, 20 to 1, 1/2, 0, and their complements are 0, 1/2, 1.
    assert statistics.efficiency([10, 30, 20], [100, 60, 20]).tolist() == [0, 0.5, 0.5]
    assert np.isnan(statistics.efficiency([10, 10], [3, 4])).all()


def test_variation_by_hand():
    assert statistics.variation([8, 10, 12]) == pytest.approx(0.2)  # deviations -2, 0, 2: sqrt(8 / 2) = 2, of 10
    assert math.isnan(statistics.variation([5]))


# Files -------------------------------------------------------------------------------------------------------


def run(folder, algorithm, seed, qd, task="hopper_uni", batch_size=10, ends=(50, 100), seconds=(5, 10), **options):
    """A run of two generations, at half and at all of its budget."""
    name = f"{task}_{algorithm}_{batch_size}_{seed}.h5"
    columns = {"evaluations": ends, "seconds": seconds, "qd_score": [qd / 2, qd], "coverage": [qd / 400, qd / 200]}
    return write_run(folder / name, task, algorithm, seed, batch_size, **columns, **options)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """One task: ascii_me is better than map_elites with each of four seeds, and twice as slow."""
    folder = tmp_path_factory.mktemp("files")
    ours = [run(folder, "ascii_me", seed, 100 + 10 * seed) for seed in range(4)]
    return ours + [run(folder, "map_elites", seed, 60 + 10 * seed, seconds=(2.5, 5)) for seed in range(4)]


def only(records, **known):
    (found,) = [record for record in records if all(getattr(record, k) == v for k, v in known.items())]
    return found


def test_medians_and_quartiles(files):
    found = compare(files)
    figure = only(found.figures, axis="evaluations", metric="qd_score", algorithm="ascii_me")
    assert (figure.task, figure.spent, figure.seeds) == ("hopper_uni", 100, 4)
    assert (figure.lower, figure.median, figure.upper) == (107.5, 115, 122.5)  # of 100, 110, 120, 130
    other = only(found.figures, axis="evaluations", metric="coverage", algorithm="map_elites")
    assert other.median == pytest.approx(0.375)
    # After 5 seconds ascii_me has ended one generation, with half of its score, and map_elites both.
    at_equal_time = [
        only(found.figures, axis="seconds", metric="qd_score", algorithm=a) for a in ("ascii_me", "map_elites")
    ]
    assert [(f.spent, f.median) for f in at_equal_time] == [(5, 57.5), (5, 75)]
    assert len(found.figures) == 2 * 3 * 2 and found.cautions == ()


def test_tests_and_effects(files):
    found = compare(files)
    test = only(found.tests, axis="evaluations", metric="qd_score")
    assert (test.first, test.second, test.first_seeds, test.second_seeds) == ("ascii_me", "map_elites", 4, 4)
    # 100, 110, 120, 130 against 60, 70, 80, 90: all of 16 pairs.
    assert test.u == 16 and test.a == 1 and test.delta == 1 and test.effect == "large"
    assert test.p == pytest.approx(2 / 70) and test.p_holm == test.p and test.significant
    # 50, 55, 60, 65 against 60, 70, 80, 90: 1 pair is won, 1 is tied.
    test = only(found.tests, axis="seconds", metric="qd_score")
    assert test.u == 1.5 and test.a == pytest.approx(1.5 / 16) and test.method == "permutations"
    test = only(found.tests, axis="evaluations", metric="max_fitness")  # the same in all
    assert test.p == 1 and test.a == 0.5 and not test.significant
    assert not only(compare(files, alpha=0.02).tests, axis="evaluations", metric="qd_score").significant
    everything = compare(files, family="all")
    # Six tests: 2/70, 2/70 and the tied ones of seconds; the least is multiplied by six.
    assert only(everything.tests, axis="evaluations", metric="qd_score").p_holm == pytest.approx(6 * 2 / 70)


def test_three_algorithms_are_corrected_together(files, tmp_path):
    more = [run(tmp_path, "pga_me", seed, 1 + seed) for seed in range(4)]
    found = [t for t in compare([*files, *more]).tests if (t.axis, t.metric) == ("evaluations", "qd_score")]
    assert [(t.first, t.second) for t in found] == [
        ("ascii_me", "map_elites"), ("ascii_me", "pga_me"), ("map_elites", "pga_me")
    ]  # fmt: skip
    assert [t.p_holm for t in found] == pytest.approx([3 * 2 / 70] * 3)
    found = [
        t
        for t in compare([*files, *more], reference="pga_me").tests
        if (t.axis, t.metric) == ("evaluations", "qd_score")
    ]
    assert [(t.first, t.second) for t in found] == [("pga_me", "ascii_me"), ("pga_me", "map_elites")]
    assert [t.p_holm for t in found] == pytest.approx([2 * 2 / 70] * 2)
    with pytest.raises(
        ValueError, match="no run of the reference 'memes' on hopper_uni; there are ascii_me, map_elites"
    ):
        compare(files, reference="memes")


def test_another_budget(files):
    found = compare(files, evaluations=60, seconds=2.5)
    assert only(found.figures, axis="evaluations", metric="qd_score", algorithm="ascii_me").median == 57.5
    early = [only(found.figures, axis="seconds", metric=m, algorithm="ascii_me") for m in ("qd_score", "max_fitness")]
    assert early[0].median == 0 and early[1].median == -math.inf
    assert any("4 of 4 runs of ascii_me had not ended a generation at 2.5 seconds" in text for text in found.cautions)
    assert "none [none–none]" in repr(found)
    with pytest.raises(ValueError, match="up to 100 evaluations"):
        compare(files, evaluations=101)


def test_few_seeds_are_cautioned_of(tmp_path):
    few = [run(tmp_path, name, seed, 10 + seed) for name in ("ascii_me", "map_elites") for seed in range(3)]
    (text,) = compare(few).cautions
    assert "with 3 and 3 seeds the smallest possible p is 0.1" in text and "that takes 4 seeds a side" in text
    alone = compare(few[:1])
    assert alone.tests == () and "one seed of ascii_me" in alone.cautions[0]


def test_budgets_that_differ_are_cautioned_of(files, tmp_path):
    longer = [run(tmp_path, "pga_me", seed, 10 + seed, ends=(100, 200)) for seed in range(4)]
    found = compare([*files, *longer])
    (text,) = [text for text in found.cautions if "budgets differ" in text]
    assert "runs end at 100 to 200 evaluations; they are compared at 100, and what 4 of 12 runs did later" in text
    assert only(found.figures, axis="evaluations", metric="qd_score", algorithm="pga_me").median == pytest.approx(5.75)
    # A last generation that does not fit into the budget is none: 96 of 120 evaluations are all that there is.
    rounded = [run(tmp_path, "memes", seed, 10 + seed, ends=(60, 120)) for seed in range(4)]
    assert not any("budgets" in text for text in compare([*files, *rounded]).cautions)


def test_hyperparameters_are_not_mixed_up(tmp_path):
    made = [
        run(tmp_path / str(share), "ascii_me", seed, 10 + seed, settings={"iso_line_share": share})
        for share in (0.25, 0.5)
        for seed in range(4)
    ]
    labels = {figure.algorithm for figure in compare(made).figures}
    assert labels == {"ascii_me (iso_line_share=0.25)", "ascii_me (iso_line_share=0.5)"}


def test_several_versions_are_cautioned_of(files, tmp_path, monkeypatch):
    monkeypatch.setattr("asciime_gym._storage.versions", lambda: '{"jax": "0.1", "brax": "0.14.2"}')
    texts = compare([*files, run(tmp_path, "ascii_me", 9, 10)]).cautions
    assert any("several versions of jax: 0.1, " in text for text in texts)


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    """Two tasks, three batch sizes, one seed of one algorithm and three of the other."""
    folder = tmp_path_factory.mktemp("sizes")
    made = []
    for task, scores in (("hopper_uni", (10, 30, 20)), ("ant_omni", (10, 20, 40))):
        for size, score, seconds in zip((10, 20, 50), scores, (100, 60, 20), strict=True):
            made.append(run(folder, "map_elites", 0, score, task, size, seconds=(seconds / 2, seconds)))
            made += [
                run(folder, "ascii_me", seed, score * times, task, size, seconds=(seconds / 2, seconds))
                for seed, times in enumerate((1, 2, 9))
            ]
    return made


def test_efficiency_of_batch_sizes(sizes):
    found = compare(sizes)
    ours = [record for record in found.batch_sizes if record.algorithm == "ascii_me"]
    # The median seed has twice the score, which scales out. hopper: 0, 1 x 1/2, 1/2 x 1 as above; ant: 0, 1/3, 1 times
    # 0, 1/2, 1; then their means.
    assert [(r.batch_size, r.tasks) for r in ours] == [(10, 2), (20, 2), (50, 2)]
    assert [r.efficiency for r in ours] == pytest.approx([0, (0.5 + 1 / 6) / 2, (0.5 + 1) / 2])
    assert [r.best for r in ours] == [False, False, True]
    # hopper: 20, 60, 40 have mean 40 and standard deviation 20; ant: 20, 40, 80 have mean 140/3.
    ant = math.sqrt(((20 - 140 / 3) ** 2 + (40 - 140 / 3) ** 2 + (80 - 140 / 3) ** 2) / 2) / (140 / 3)
    spread = only(found.variation, algorithm="ascii_me")
    assert spread.variation == pytest.approx((0.5 + ant) / 2) and (spread.batch_sizes, spread.tasks) == (3, 2)
    assert only(found.variation, algorithm="map_elites").variation == pytest.approx((0.5 + ant) / 2)


def test_efficiency_where_a_batch_size_is_missing(sizes):
    some = [path for path in sizes if "map_elites" in path.name and "ant_omni_map_elites_20" not in path.name]
    found = compare(some)
    assert [(r.batch_size, r.tasks) for r in found.batch_sizes] == [(10, 2), (20, 1), (50, 2)]
    assert any(
        "not every batch size was run on every task (10 in 2, 20 in 1, 50 in 2 tasks)" in t for t in found.cautions
    )


def test_efficiency_where_other_settings_go_with_the_batch_size(tmp_path):
    """As `PgaME.scaled` makes them: minibatches in proportion, or more steps; both together are two things."""
    scaled = lambda name, size, score, seconds, **fields: run(
        tmp_path / name, "pga_me", 0, score, batch_size=size, settings=fields, seconds=(seconds / 2, seconds)
    )
    minibatch = [
        scaled("minibatch", 10, 10, 100, minibatch_size=100),
        scaled("minibatch", 20, 30, 60, minibatch_size=200),
        scaled("minibatch", 50, 20, 20, minibatch_size=500),
    ]
    found = compare(minibatch)
    assert {r.algorithm for r in found.batch_sizes} == {"pga_me (minibatch_size=by batch size)"}
    assert [(r.batch_size, r.efficiency) for r in found.batch_sizes] == [(10, 0), (20, 0.5), (50, 0.5)]
    assert found.variation[0].batch_sizes == 3 and not any("one batch size only" in t for t in found.cautions)
    other = [scaled("none", 20, 25, 50, minibatch_size=100), scaled("none", 50, 9, 40, minibatch_size=100)]
    mixed = compare([*minibatch, *other])
    assert {r.algorithm for r in mixed.batch_sizes} == {"pga_me (minibatch_size=100)"}
    told = [text for text in mixed.cautions if "one batch size only" in text]
    assert len(told) == 2 and "pga_me (minibatch_size=200)" in told[0] and "one way to scale" in told[0]


def test_runtime_is_taken_at_equal_evaluations(tmp_path):
    # A batch of 80 ends at 160 evaluations, where the others end at 100: of its 16 seconds 10 count.
    made = [
        run(tmp_path, "ascii_me", 0, 30, batch_size=50, ends=(50, 100), seconds=(20, 40)),
        run(tmp_path, "ascii_me", 0, 20, batch_size=80, ends=(80, 160), seconds=(8, 16)),
        run(tmp_path, "ascii_me", 0, 12, batch_size=100, ends=(50, 100), seconds=(10, 20)),
    ]
    scores = {r.batch_size: r.efficiency for r in compare(made).batch_sizes}
    # QD scores 30, 10, 12 scale to 1, 0, 0.1; runtimes 40, 10, 20 to 1, 0, 1/3.
    assert scores == pytest.approx({50: 0, 80: 0, 100: 0.1 * 2 / 3})


# Doors -------------------------------------------------------------------------------------------------------


def test_tables(files, sizes):
    found = compare([*files, *(path for path in sizes if "ant" in path.name)])
    for text in (repr(found), found.to_markdown()):
        for word in (
            "hopper_uni at 100 evaluations",
            "at 5 seconds",
            "115 [107.5–122.5]",
            "57.5 [53.75–61.25]",
            "p 0.029",
        ):
            assert word in text
        assert "Efficiency score by batch size" in text and "1.00 (best)" in text
    lines = found.to_markdown().splitlines()
    start = lines.index("| algorithm | seeds | QD score | coverage (%) | best fitness |")
    assert lines[start + 1] == "| --- | ---: | ---: | ---: | ---: |" and "ascii_me" in lines[start + 2]
    assert lines[0].startswith("> **Caution.** ") and found._repr_markdown_() == found.to_markdown()
    frame = found.to_dataframe()
    assert frame[frame.metric == "qd_score"].iloc[0]["median"] == 20 and len(frame) == len(found.figures)
    assert set(found.to_dataframe("tests").columns) >= {"u", "p", "p_holm", "a", "delta", "effect", "method"}
    assert len(found.to_dataframe("batch_sizes")) == len(found.batch_sizes) == 6


def test_csv(files, tmp_path):
    found = compare(files)
    text = found.to_csv(tmp_path / "new" / "a.csv")
    assert (tmp_path / "new" / "a.csv").read_text() == text
    records = list(csv.DictReader(io.StringIO(text)))
    assert [r["table"] for r in records] == ["figures"] * 12 + ["tests"] * 6
    assert [float(r["median"]) for r in records[:12]] == [figure.median for figure in found.figures]
    assert [float(r["p_holm"]) for r in records[12:]] == [test.p_holm for test in found.tests]


def test_real_runs_in_memory_and_in_files(tmp_path):
    made = []
    for seed in range(2):
        made.append(ag.Optimizer(ag.MapElites(batch_size=8), Walk(), seed=seed, centroids=16))
        made[-1].fit(evaluations=24, checkpoint=tmp_path / f"{seed}.h5")
    here, there = compare(made), compare(sorted(tmp_path.glob("*.h5")))
    assert here.figures == there.figures
    expected = np.median([m.history["qd_score"][-1] for m in made])
    assert only(here.figures, axis="evaluations", metric="qd_score").median == pytest.approx(expected)


def test_bad_input(files, tmp_path):
    archive = write_run(tmp_path / "archive.h5")
    other = write_run(tmp_path / "other.h5", seed=9, cells=32, evaluations=[50, 100])
    cases = [
        ([], "no file was given"),
        ([*files, archive], "archive.h5 has no history"),
        ([*files, other], "differ in the number of cells"),
        ([*files, files[0]], "a run counts once"),
    ]
    for given, sentence in cases:
        with pytest.raises(ValueError, match=sentence) as caught:
            compare(given)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="alpha must be between 0 and 1; got 5"):
        compare(files, alpha=5.0)


def test_command_line(files, tmp_path, capsys, monkeypatch):
    words = ["compare", *map(str, files)]
    monkeypatch.setattr("asciime_gym._cli_analysis._CONSOLE", command_line.Console(width=160))
    assert command_line.main(words) == 0
    assert "115 [107.5–122.5]" in capsys.readouterr().out
    monkeypatch.setattr("asciime_gym._cli_analysis._CONSOLE", command_line.Console(width=72))
    assert command_line.main(words) == 0
    out = capsys.readouterr().out
    assert "[107.5–122.5]" in out and "…" not in out
    assert command_line.main([*words, "--format", "markdown", "--reference", "map_elites"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### hopper_uni at 100 evaluations") and "| map_elites : ascii_me |" in out
    assert command_line.main([*words, "--format", "csv", "--evaluations", "60"]) == 0
    assert capsys.readouterr().out.startswith("table,task,axis,spent")
    for name, begin in (("a.md", "### "), ("a.csv", "table,"), ("a.txt", "hopper_uni at")):
        assert command_line.main([*words, "-o", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_text().startswith(begin) and name in capsys.readouterr().out
    assert command_line.main(["compare", *words[1:], words[1]]) == 2
    assert "a run counts once" in capsys.readouterr().err
