"""Pictures: they show the numbers that are in the files, and bad input gets one clear sentence."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from helpers import Walk
from made_runs import archive_of, centroids_of, history_of, write_run

import asciime_gym as ag
from asciime_gym import __main__ as command_line
from asciime_gym.analysis import KINDS, plot
from asciime_gym.analysis._series import band, held, seconds_at, value_at

pytest.importorskip("matplotlib")
from asciime_gym.analysis import _bars, _cells, _colours, _maps, _sources, _style

STYLES = tuple(_style.STYLES)
SLOW, FAST = np.arange(10, 101, 10), np.arange(25, 101, 25)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of runs: two tasks, two algorithms, two batch sizes, three seeds."""
    folder = tmp_path_factory.mktemp("runs")
    for task, algorithm, seed in itertools.product(("hopper_uni", "ant_omni"), ("ascii_me", "map_elites"), range(3)):
        for size, spent in ((10, SLOW), (25, FAST)):
            better = (1 + seed) * (2 if algorithm == "ascii_me" else 1)
            write_run(
                folder / f"{task}_{algorithm}_{size}_{seed}.h5",
                task,
                algorithm,
                seed,
                size,
                dims=1 if task == "hopper_uni" else 2,
                evaluations=spent,
                qd_score=better * spent,
                seconds=spent / size,
            )
    for dims in (1, 2, 3, 4, 5):
        write_run(folder / f"{dims}d.h5", f"task_{dims}", dims=dims, evaluations=SLOW)
    return folder


def many(folder, pattern="*_uni_*_10_*"):
    return sorted(folder.glob(f"{pattern}.h5"))


# Numbers -----------------------------------------------------------------------------------------------------


def test_the_last_value_is_carried_forward():
    at, values = np.array([10, 20, 40]), np.array([1.0, 2.0, 4.0])
    points = np.array([5, 10, 19, 20, 39, 40, 99])
    np.testing.assert_array_equal(held(at, values, points), [np.nan, 1, 1, 2, 2, 4, 4])
    np.testing.assert_array_equal(held(at, values, points, before=0), [0, 1, 1, 2, 2, 4, 4])


def test_a_band_over_unequal_generations():
    runs = [
        history_of(evaluations=[10, 20, 30], qd_score=[1, 2, 3], coverage=[0.1, 0.2, 0.3], seconds=[1, 2, 3]),
        history_of(evaluations=[15, 25, 35], qd_score=[10, 20, 30], coverage=[0.2, 0.4, 0.6], seconds=[1, 2, 3]),
        history_of(evaluations=[5, 28, 60], qd_score=[100, 200, 300], coverage=[0.3, 0.6, 0.9], seconds=[1, 2, 3]),
    ]
    found = band(runs, "qd_score")
    assert found.at.tolist() == [15, 20, 25, 28, 30]  # from where the last begins to where the first ends
    assert found.median.tolist() == [10, 10, 20, 20, 20]
    assert found.lower.tolist() == [5.5, 6, 11, 11, 11.5]  # halfway between the least and the middle one
    assert found.upper.tolist() == [55, 55, 60, 110, 110]
    assert band(runs, "coverage", "seconds").median.tolist() == pytest.approx([20, 40, 60])
    with pytest.raises(ValueError, match="no evaluations in common"):
        band([history_of(evaluations=[10, 20]), history_of(evaluations=[30, 40])], "qd_score")


def test_runs_that_do_not_overlap_are_drawn_each_by_itself(tmp_path):
    early = write_run(tmp_path / "a.h5", seed=0, evaluations=[10, 20], seconds=[1, 2], qd_score=[3, 4])
    late = write_run(tmp_path / "b.h5", seed=1, evaluations=[10, 20], seconds=[5, 6], qd_score=[5, 6])
    figure = plot([early, late])
    assert [line.get_ydata().tolist() for line in figure.axes[0].get_lines()] == [[4, 5]]
    assert [line.get_ydata().tolist() for line in figure.axes[3].get_lines()] == [[3, 4], [5, 6]]


def test_very_many_points_are_thinned_to_what_can_be_seen():
    found = band(
        [history_of(evaluations=np.arange(1, 10_001)), history_of(evaluations=np.arange(1, 9_001))], "qd_score"
    )
    assert len(found.at) == 2000 and found.at[0] == 1 and found.at[-1] == 9000


def test_figures_within_a_budget():
    run = history_of(evaluations=[10, 30], qd_score=[5, 7], coverage=[0.25, 0.5], max_fitness=[1, 2], seconds=[2, 8])
    assert [value_at(run, "qd_score", "evaluations", at) for at in (9, 10, 29, 30)] == [0, 5, 5, 7]
    assert value_at(run, "coverage", "seconds", 7.9) == 0.25
    assert value_at(run, "max_fitness", "seconds", 1) == -np.inf
    assert [seconds_at(run, at) for at in (5, 10, 20, 30)] == [1, 2, 5, 8]


def test_cells_of_two_dimensions_tile_the_bounds():
    archive = archive_of(2, cells=50)
    corners = [archive.low + each * (archive.high - archive.low) for each in _cells.polygons(archive)]
    area = lambda x, y: abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
    assert sum(area(*each.T) for each in corners) == pytest.approx(60 * 60)
    for centre, each in zip(archive.centroids, corners, strict=True):
        assert np.abs(each).max() <= 30 + 1e-6
        middle = each.mean(axis=0)  # a cell is convex: its middle is nearest to its own centre
        assert np.argmin(((archive.centroids - middle) ** 2).sum(axis=1)) == np.flatnonzero(
            (archive.centroids == centre).all(axis=1)
        )


def test_cells_of_one_dimension_tile_the_bounds():
    fitness = np.full(8, -np.inf)
    fitness[3] = 7
    edges, shown = _maps._intervals(archive_of(1, cells=8, fitness=fitness))
    assert edges[0] == 0 and edges[-1] == 1 and (np.diff(edges) > 0).all() and len(edges) == 9
    place = np.flatnonzero(~np.isnan(shown))
    assert len(place) == 1 and shown[place] == 7
    centre = centroids_of(8, 1)[3, 0]
    assert edges[place] < centre < edges[place + 1]


@pytest.mark.parametrize(("dims", "fixed"), [(3, [2]), (4, [0, 3])])
def test_slices_show_the_nearest_cell(dims, fixed):
    archive, levels = archive_of(dims, cells=40), 4
    found = _cells.slice_cells(archive, fixed, levels)
    assert found.shape == (_cells.PIXELS, _cells.PIXELS)
    for up, across in ((0, 0), (0, _cells.PIXELS - 1), (10, 30)):
        place = [
            (across + 0.5) / _cells.PIXELS,
            (up + 0.5) / _cells.PIXELS,
            *((level + 0.5) / levels for level in fixed),
        ]
        nearest = np.argmin(((archive.centroids - np.array(place)) ** 2).sum(axis=1))
        assert found[up, across] == nearest


def test_share_of_cells_that_are_at_least_so_fit():
    fitness = np.full(10, -np.inf)
    fitness[:4] = [1, 2, 2, 5]
    source = _sources.read(archive_of(1, cells=10, fitness=fitness))[0]
    assert _bars.share_above(source, np.array([0, 1, 1.5, 2, 2.5, 5, 6])).tolist() == [40, 40, 30, 30, 10, 10, 0]


# Pictures ----------------------------------------------------------------------------------------------------


def texts_outside(figure) -> list[str]:
    """Words that are cut off by the picture's edge; ticks beyond an axis are not drawn at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    width, height = figure.get_size_inches() * figure.dpi
    axes = figure.findobj(lambda artist: hasattr(artist, "xaxis"))
    ticks = {id(label) for each in axes for axis in (each.xaxis, each.yaxis) for label in axis.get_ticklabels()}
    found = []
    for text in figure.findobj(lambda artist: hasattr(artist, "get_text")):
        if text.get_visible() and text.get_text().strip() and id(text) not in ticks:
            box = text.get_window_extent()
            if min(box.x0, box.y0) < -3 or box.x1 > width + 3 or box.y1 > height + 3:
                found.append(text.get_text())
    return found


CASES = {
    "run": ["1d", "2d", "4d"],
    "map": ["1d", "2d", "3d", "4d", "5d", "many"],
    "slices": ["3d", "4d"],
    "parallel": ["2d", "4d"],
    "history": ["1d"],
    "curves": ["1d", "many", "tasks"],
    "operators": ["1d", "many"],
    "batch_sizes": ["sizes"],
    "ccdf": ["1d", "many", "tasks"],
}


@pytest.mark.parametrize(("kind", "what"), [(kind, what) for kind in CASES for what in CASES[kind]])
def test_every_kind_is_drawn_and_nothing_is_cut_off(kind, what, folder, tmp_path):
    patterns = {"many": "hopper_uni_*_10_*", "tasks": "*_10_*", "sizes": "*_*_*_*_*"}
    files = many(folder, patterns[what]) if what in patterns else folder / f"{what}.h5"
    style = STYLES[len(what) % 2]
    figure = plot(files, kind, style=style, out=tmp_path / "new" / "picture.png")
    assert (tmp_path / "new" / "picture.png").read_bytes()[1:4] == b"PNG"
    assert texts_outside(figure) == []


def test_one_run_at_two_times_side_by_side(tmp_path):
    early, late = (write_run(tmp_path / f"{n}.h5", evaluations=SLOW[:n]) for n in (2, 9))
    assert plot([early, late], "map")._suptitle.get_text() == "hopper_uni"
    with pytest.raises(ValueError, match="a run counts once"):
        plot([early, late], "curves")


def test_all_kinds_are_tried():
    assert set(CASES) == set(KINDS)


@pytest.mark.parametrize("style", STYLES)
def test_styles(style, tmp_path):
    from matplotlib.image import imread

    figure = archive_of(2).plot(style=style, out=tmp_path / "map.png")
    corner = imread(tmp_path / "map.png")[2, 2]
    expected = {"light": [1, 1, 1, 1], "dark": [0x14 / 255, 0x17 / 255, 0x1C / 255, 1]}.get(style)
    assert corner[3] == 0 if expected is None else np.allclose(corner, expected, atol=0.01)
    assert figure._repr_png_()[1:4] == b"PNG"


def test_other_formats_keep_letters_as_letters(folder, tmp_path):
    plot(folder / "1d.h5", out=tmp_path / "a.svg")
    plot(folder / "1d.h5", "map", out=tmp_path / "a.pdf")
    assert "contact rate of foot 1 (share of steps)" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "a.pdf").read_bytes()[:4] == b"%PDF"
    with pytest.raises(ValueError, match=r"not supported.*png"):
        plot(folder / "1d.h5", out=tmp_path / "a.docx")


def test_the_map_has_the_colours_of_the_fitness():
    fitness = np.full(16, -np.inf)
    fitness[[2, 5]] = [0, 100]
    archive = archive_of(2, cells=16, fitness=fitness)
    figure = archive.plot()
    (cells,) = [
        c
        for axes in figure.findobj(lambda a: hasattr(a, "collections"))
        for c in axes.collections
        if len(c.get_facecolor()) == 16
    ]
    colours = cells.get_facecolor()
    from matplotlib import colormaps
    from matplotlib.colors import to_rgba

    np.testing.assert_allclose(colours[2], colormaps["viridis"](0.0), atol=0.01)
    np.testing.assert_allclose(colours[5], colormaps["viridis"](1.0), atol=0.01)
    np.testing.assert_allclose(colours[7], to_rgba(_style.STYLES["light"].empty))
    labels = {axes.get_ylabel() for axes in figure.findobj(lambda a: hasattr(a, "get_ylabel"))}
    assert {"final y (m)", "fitness (sum of rewards)"} <= labels


def test_curves_are_medians_with_fixed_colours_and_units(folder):
    figure = plot(many(folder, "hopper_uni_*_10_*"))
    against_evaluations, against_time = figure.axes[0], figure.axes[3]
    assert against_evaluations.get_xlabel() == "evaluations (episodes)" and against_time.get_xlabel() == "time (s)"
    assert [axes.get_ylabel() for axes in figure.axes[:3]] == [
        "QD score (sum of fitness)", "coverage (% of cells)", "best fitness (sum of rewards)"
    ]  # fmt: skip
    lines = {line.get_color(): line for line in against_evaluations.get_lines()}
    ours, others = lines[_style.ALGORITHMS["ascii_me"]], lines[_style.ALGORITHMS["map_elites"]]
    np.testing.assert_array_equal(ours.get_xdata(), SLOW)
    np.testing.assert_allclose(ours.get_ydata(), 4 * SLOW)  # seeds 0, 1, 2 have twice 1, 2, 3 times that
    np.testing.assert_allclose(others.get_ydata(), 2 * SLOW)
    np.testing.assert_allclose(against_time.get_lines()[0].get_xdata(), SLOW / 10)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ascii_me, 3 seeds", "map_elites, 3 seeds"]
    edges = against_evaluations.collections[0].get_paths()[0].vertices[:, 1]
    assert edges.min() == pytest.approx(3 * SLOW[0]) and edges.max() == pytest.approx(5 * SLOW[-1])  # the quartiles
    only = plot(many(folder, "hopper_uni_*_10_*"), against="seconds", title="Ours")
    assert only.legends[0].get_title().get_text() == "Ours" and texts_outside(only) == []
    assert {axes.get_xlabel() for axes in only.axes} == {"time (s)"}


def test_groups_are_told_apart(folder):
    figure = plot(many(folder, "hopper_uni_ascii_me_*"), "curves")
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["ascii_me (batch_size=10), 3 seeds", "ascii_me (batch_size=25), 3 seeds"]
    looks = {(line.get_color(), str(line.get_linestyle())) for line in figure.axes[0].get_lines()}
    assert len(looks) == 2


def test_operators_are_summed_up(folder):
    figure = plot(folder / "1d.h5", "operators")
    lines = {line.get_color(): line.get_ydata() for line in figure.axes[0].get_lines()}
    np.testing.assert_array_equal(lines[_colours.OPERATORS["ascii"]], 4 * np.arange(1, 11))
    np.testing.assert_array_equal(lines[_colours.OPERATORS["iso_line"]], 3 * np.arange(1, 11))


def test_bars_are_medians_over_seeds(folder):
    figure = plot(many(folder, "hopper_uni_*_*_*_*"), "batch_sizes")
    heights = sorted(bar.get_height() for bar in figure.axes[0].patches)
    assert heights == pytest.approx([200, 200, 400, 400])
    assert sorted(bar.get_height() for bar in figure.axes[1].patches) == pytest.approx([4, 4, 10, 10])
    assert figure.axes[1].get_ylabel() == "time (s)"
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["10", "25"]


def test_a_long_time_is_shown_in_hours(tmp_path):
    path = write_run(tmp_path / "a.h5", evaluations=SLOW, seconds=3600.0 * np.arange(1, 11))
    axes = plot(path, "curves", against="seconds").axes[0]
    assert axes.get_xlabel() == "time (h)" and axes.get_lines()[0].get_xdata()[-1] == pytest.approx(10)


def test_optimizers_and_archives_in_memory():
    made = ag.Optimizer(ag.MapElites(batch_size=8), Walk(), centroids=16)
    made.fit(evaluations=24)
    other = ag.Optimizer(ag.MapElites(batch_size=8), Walk(), seed=1, centroids=16)
    other.fit(evaluations=24)
    assert "map_elites on walk, seed 0" in plot(made)._suptitle.get_text()
    line = plot([made, other], against="evaluations").axes[0].get_lines()[0]
    np.testing.assert_allclose(
        line.get_ydata(), (made.history["qd_score"].astype(float) + other.history["qd_score"]) / 2
    )


def test_no_trace_is_left_in_matplotlib(folder):
    import matplotlib
    from matplotlib import pyplot

    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 30}):
        before = dict(matplotlib.rcParams)
        figure = plot(folder / "1d.h5")
        assert dict(matplotlib.rcParams) == before and pyplot.get_fignums() == []
    axes = figure.findobj(lambda artist: hasattr(artist, "get_facecolor") and hasattr(artist, "get_xlabel"))
    assert {axes.get_facecolor() for axes in axes} == {(1.0, 1.0, 1.0, 1.0)}


def test_nothing_heavy_is_imported_before_it_is_needed():
    code = "import sys, asciime_gym.analysis, asciime_gym.__main__\n"
    code += (
        "print([m for m in ('matplotlib', 'pandas', 'scipy.stats', 'statsmodels', 'tensorboardX') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Colours -----------------------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes (2009): what eyes without one kind of cone see, in linear RGB.
EYES = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(colour: str) -> np.ndarray:
    from matplotlib.colors import to_rgb

    values = np.array(to_rgb(colour))
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """A colour in a space where distances are about what eyes see (Ottosson 2020)."""
    cones = [[0.412221, 0.536333, 0.051446], [0.211903, 0.6807, 0.107397], [0.088302, 0.281719, 0.629979]]
    mix = [[0.210454, 0.793618, -0.004072], [1.977998, -2.428592, 0.450594], [0.025904, 0.782772, -0.808676]]
    return np.array(mix) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


def contrast(a: str, b: str) -> float:
    light, dark = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] + 0.05 for c in (a, b)), reverse=True)
    return light / dark


@pytest.mark.parametrize("eyes", EYES)
def test_algorithms_can_be_told_apart(eyes):
    seen = [oklab(np.array(EYES[eyes]) @ linear(colour)) for colour in _style.ALGORITHMS.values()]
    nearest = min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))
    assert nearest > 0.07  # about 0.02 can just be seen
    assert set(_style.ALGORITHMS) == set(_sources.ORDER)


PAPERS = [("light", "#FFFFFF"), ("dark", "#14171C"), ("transparent", "#FFFFFF"), ("transparent", "#0D1117")]


@pytest.mark.parametrize(("style", "paper"), PAPERS)
def test_words_can_be_read_and_lines_be_seen(style, paper):
    assert contrast(_style.STYLES[style].ink, paper) > (4.2 if style == "transparent" else 12)
    assert min(contrast(colour, paper) for colour in _style.ALGORITHMS.values()) > 2.2
    lowest = _style.STYLES[style].fitness(0.0)
    assert contrast(lowest, paper) > 1.8


# Bad input ---------------------------------------------------------------------------------------------------


def test_bad_input_gets_a_clear_sentence(folder, tmp_path):
    empty = write_run(tmp_path / "empty.h5", fitness=np.full(64, -np.inf), evaluations=[8])
    archive = write_run(tmp_path / "archive.h5")
    unborn = tmp_path / "unborn.h5"
    ag.Optimizer(ag.MapElites(batch_size=8), Walk(), centroids=16).save(unborn)
    longer = write_run(tmp_path / "longer.h5", "hopper_uni", seed=9, dims=2, evaluations=SLOW)
    finer = write_run(tmp_path / "finer.h5", "hopper_uni", seed=9, cells=32, evaluations=SLOW)
    mjx = write_run(tmp_path / "mjx.h5", "hopper_uni", seed=9, world={"backend": "mjx"}, evaluations=SLOW)
    hopper, ant = folder / "hopper_uni_ascii_me_10_0.h5", folder / "ant_omni_ascii_me_10_0.h5"
    cases = [
        ([], None, "no file was given"),
        (empty, None, "empty.h5: the archive is empty"),
        (empty, "map", "empty.h5: the archive is empty"),
        (empty, "ccdf", "empty.h5: the archive is empty"),
        (unborn, None, "unborn.h5: the archive is empty"),
        (unborn, "curves", "unborn.h5: the run has no generation yet"),
        (archive, "run", "archive.h5 has no history"),
        (archive, "curves", "archive.h5 has no history"),
        (archive, "operators", "archive.h5 has no history"),
        (archive, "batch_sizes", "archive.h5 has no history"),
        ([hopper, archive], None, "archive.h5 has no history"),
        ([hopper, longer], "map", "differ in the length of their descriptors: .*_0.h5 has 1, longer.h5 has 2"),
        ([hopper, longer], "curves", "differ in the length of their descriptors"),
        ([hopper, finer], None, "differ in the number of cells: .* has 64, finer.h5 has 32"),
        ([hopper, mjx], None, "differ in the backend: .* has spring, mjx.h5 has mjx"),
        ([hopper, ant], "map", "must be of one task: .*h5 is of .*_.*, .*h5 of .*; draw each task by itself"),
        ([hopper, ant], "run", "draws one file; 2 were given"),
        ([hopper, hopper], None, "hold the same run .ascii_me on hopper_uni, seed 0.; a run counts once"),
        (hopper, "slices", "3 or 4 numbers; this archive's have 1"),
        (hopper, "parallel", "2 numbers or more"),
        (many(folder, "hopper_uni_*_10_*"), "batch_sizes", "two batch sizes or more; all have 10"),
    ]  # fmt: skip
    for files, kind, sentence in cases:
        with pytest.raises((ValueError, ag.FileError), match=sentence) as caught:
            plot(files, kind)
        assert "\n" not in str(caught.value)


def test_a_file_that_is_none():
    with pytest.raises(ag.FileError, match="no such file"):
        plot("nowhere.h5")
    with pytest.raises(TypeError, match="expected files, archives or optimizers; got int"):
        plot([3])


def test_an_unknown_word_names_the_known_ones(folder):
    code = "import asciime_gym as ag, sys\nfor words in ({'kind': 'pie'}, {'style': 'pink'}, {'against': 'steps'}):\n"
    code += "    try:\n        ag.analysis.plot(sys.argv[1], **words)\n"
    code += "    except ValueError as error:\n        print(error)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder / "1d.h5")], capture_output=True, text=True, check=True
    )
    kind, style, against = done.stdout.splitlines()  # without the type checks that the other tests run under
    assert kind.startswith("kind must be one of ['run', 'map'") and kind.endswith("got 'pie'")
    assert style == "style must be one of ['light', 'dark', 'transparent']; got 'pink'"
    assert against == "against must be one of ['evaluations', 'seconds']; got 'steps'"


# The command line --------------------------------------------------------------------------------------------


def test_command_line(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [str(path) for path in many(folder, "hopper_uni_*_10_*")]
    assert command_line.main(["plot", *words]) == 0
    assert "curves.png" in capsys.readouterr().out and (tmp_path / "curves.png").exists()
    assert command_line.main(["plot", words[0], "-o", "map.svg", "--kind", "map", "--dark"]) == 0
    assert "#14171c" in (tmp_path / "map.svg").read_text()
    assert (
        command_line.main(["plot", *words, "--kind", "ccdf", "--transparent", "--out", "new/c.png", "--title", "Ours"])
        == 0
    )
    assert (tmp_path / "new" / "c.png").exists()
    capsys.readouterr()
    assert command_line.main(["plot", words[0], str(folder / "2d.h5"), "--kind", "map"]) == 2
    assert "must be of one task" in capsys.readouterr().err
    assert command_line.main(["plot", words[0], "--dark", "--transparent"]) == 2
    with pytest.raises(SystemExit):
        command_line.main(["plot", words[0], "--kind", "pie"])
    assert "batch_sizes" in capsys.readouterr().err
