"""The explorer's page in a real browser.

Pictures go to the folder that the environment variable ASCIIME_PICTURES names, else to a temporary one.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from explorer_pages import HOSTILE, made_archive, moving_archive

import asciime_gym as ag
from asciime_gym._motion import motion
from asciime_gym.analysis.explorer import _poses, explore

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium"),
]
FILLED = re.compile(r"evaluation ([\d,]+): ([\d,]+) of ([\d,]+) cells filled")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def picture(browser, folder) -> Callable[[str], None]:
    """Takes a picture of the page."""
    kept = Path(os.environ.get("ASCIIME_PICTURES", folder))
    kept.mkdir(parents=True, exist_ok=True)
    return lambda name: browser.picture(kept / f"{name}.png")


@pytest.fixture(scope="module")
def archives() -> dict[int, ag.ArchiveView]:
    """One of each number of dimensions, without policies."""
    return {dims: made_archive(dims, 64) for dims in (1, 2, 3, 4, 5)}


@pytest.fixture(scope="module")
def maps(archives, folder) -> dict[int, Path]:
    return {dims: explore(archive, folder / f"{dims}.html") for dims, archive in archives.items()}


@pytest.fixture(scope="module")
def moving(tasks) -> ag.ArchiveView:
    return moving_archive(tasks["hopper_uni"], 24)


@pytest.fixture(scope="module")
def moving_page(moving, folder) -> Path:
    return explore(moving, folder / "moving.html")


def text(browser: Browser, name: str) -> str:
    return browser.run(f"document.getElementById('{name}').innerText")


def scene(browser: Browser) -> str:
    """All pixels of the 3-D picture."""
    return browser.run("document.getElementById('scene').toDataURL()")


def drawn(browser: Browser):
    """Waits until what was asked for is on the screen."""
    browser.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def slide(browser: Browser, name: str, value: int):
    event = "new Event('input', {bubbles: true})"
    browser.run(f"(e => {{ e.value = {value}; e.dispatchEvent({event}); }})(document.getElementById('{name}'))")


def colour(browser: Browser, cell: int) -> list[int]:
    """What the map has at the middle of a cell."""
    return browser.run(
        f"""((at) => {{
          const canvas = document.getElementById("cells"), box = canvas.getBoundingClientRect();
          const scale = canvas.width / box.width;
          const [x, y] = [(at[0] - box.left) * scale, (at[1] - box.top) * scale];
          return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data.slice(0, 3)];
        }})(explorer.centre({cell}))"""
    )


def hover(browser: Browser, cell: int):
    browser.mouse("mouseMoved", *browser.run(f"explorer.centre({cell})"))


def empty_cell(archive: ag.ArchiveView) -> int:
    return int(np.setdiff1d(np.arange(archive.cells), archive.cell)[0])


def lines_of(archive: ag.ArchiveView, row: int) -> list[str]:
    """What the page is to say of an elite."""
    four = lambda value: f"{float(np.format_float_positional(value, 4, fractional=False)):,.10g}"
    names = zip(archive.descriptor_names, archive.descriptor[row], strict=True)
    places = [f"{name}: {four(value)}" for name, value in names]
    come = f"Came at evaluation: {archive.evaluation[row]:,}"
    return [f"Fitness {archive.fitness[row]:,.1f}", *places, f"Operator: {archive.operator[row]}", come]


@pytest.mark.parametrize("dims", [1, 2, 3, 4, 5])
def test_hovering_shows_the_right_numbers(browser, archives, maps, dims):
    archive = archives[dims]
    browser.open(maps[dims], height=1100)
    shown = [row for row in range(len(archive)) if browser.run(f"explorer.centre({archive.cell[row]})")]
    for row in shown[:: len(shown) // 5]:
        hover(browser, archive.cell[row])
        assert text(browser, "tip").splitlines() == lines_of(archive, row)
    if browser.run(f"explorer.centre({empty_cell(archive)})"):
        hover(browser, empty_cell(archive))
        assert text(browser, "tip").startswith("Empty cell")
    assert browser.problems == []


def test_nothing_is_fetched_and_nothing_is_wrong(browser, moving_page):
    browser.open(moving_page)
    browser.until("explorer.ready()")
    assert browser.requests == [moving_page.resolve().as_uri()]
    assert browser.problems == []
    reached = "fetch('https://example.com').then(() => 'reached', () => 'refused')"
    assert browser.run(reached) == "refused"
    assert any("Content Security Policy" in problem for problem in browser.problems)


def test_names_from_a_file_do_nothing(browser, folder):
    archive = made_archive(2, 16, names=(HOSTILE, "y"), operators=("initial", HOSTILE, "ascii"))
    browser.open(explore(archive, folder / "hostile.html", title=HOSTILE))
    hover(browser, archive.cell[0])
    assert HOSTILE.split("\u2028")[0] in text(browser, "tip")
    assert browser.run("document.title").startswith("</script>") and not browser.run("document.images.length")
    assert browser.problems == []


def test_the_slider_replays_how_the_cells_were_filled(browser, archives, maps):
    archive = archives[2]
    browser.open(maps[2])
    last = archive.evaluation.max()
    for value in (0, 20, 200, 400):
        slide(browser, "evaluations", value)
        match = FILLED.fullmatch(text(browser, "count"))
        assert match is not None
        until, filled, cells = (int(number.replace(",", "")) for number in match.groups())
        assert (until, cells) == (int(last * value / 400), 64)
        assert filled == (archive.first_filled <= until).sum() == browser.run("explorer.count().filled")
        assert browser.run("explorer.count().present") == (archive.evaluation <= until).sum()


def test_a_cell_whose_elite_came_later_has_a_colour_of_its_own(browser, archives, maps):
    archive = archives[2]
    browser.open(maps[2])
    row = int(np.argmax(archive.evaluation - archive.first_filled))
    final, empty = colour(browser, archive.cell[row]), colour(browser, empty_cell(archive))
    slide(browser, "evaluations", 200)
    assert archive.first_filled[row] < archive.evaluation.max() // 2 < archive.evaluation[row]
    between = colour(browser, archive.cell[row])
    assert between not in (final, empty)
    hover(browser, archive.cell[row])
    told = f"first at evaluation {archive.first_filled[row]:,}\nits present elite came at {archive.evaluation[row]:,}"
    assert told in text(browser, "tip")
    slide(browser, "evaluations", 0)
    assert colour(browser, archive.cell[row]) == empty


def test_operators_can_be_left_out(browser, archives, maps, picture):
    archive = archives[2]
    browser.open(maps[2])
    row = int(np.flatnonzero(archive.operator == "iso_line")[0])
    other = int(np.flatnonzero(archive.operator == "ascii")[0])
    before = [colour(browser, archive.cell[i]) for i in (row, other)]
    browser.run("[...document.querySelectorAll('#operators label')].find(l => /iso_line/.test(l.innerText)).click()")
    after = [colour(browser, archive.cell[i]) for i in (row, other)]
    assert after[0] != before[0] and after[1] == before[1]
    hover(browser, archive.cell[row])
    assert "not shown" in text(browser, "tip")
    picture("operators")


def test_a_page_of_a_full_archive_opens(browser, tasks, folder):
    """How long that takes is printed (pytest -s), and depends on the machine."""
    page = explore(moving_archive(tasks["hopper_uni"], 1024), folder / "full.html")
    browser.open(page)
    ready = browser.run(
        """new Promise((done) => {
          const look = () => (explorer.ready() ? done(performance.now()) : setTimeout(look, 1));
          look();
        })"""
    )
    print(f"{page.stat().st_size / 1e6:.1f} MB, ready to play {ready / 1000:.2f} s after it was asked for")
    assert browser.run("explorer.count().filled") == 1024 and browser.problems == []


def test_clicking_a_cell_makes_its_elite_move(browser, moving, moving_page, picture):
    browser.open(moving_page)
    browser.until("explorer.ready()")
    drawn(browser)
    still = scene(browser)
    drawn(browser)
    assert scene(browser) == still and not browser.run("explorer.playing()")
    browser.click(*browser.run(f"explorer.centre({moving.cell[7]})"))
    browser.until("explorer.playing()")
    facts = text(browser, "facts").splitlines()
    assert facts[facts.index("Fitness") + 1] == f"{moving.fitness[7]:,.1f}"
    first = scene(browser)
    browser.until("Number(document.getElementById('time').value) > 100")
    assert scene(browser) not in (first, still)
    picture("moving")
    browser.run("document.getElementById('play').click()")
    assert not browser.run("explorer.playing()")
    drawn(browser)
    paused = scene(browser)
    drawn(browser)
    assert scene(browser) == paused
    assert browser.problems == []


def test_links_are_where_the_episode_had_them(browser, moving, moving_page):
    browser.open(moving_page)
    browser.until("explorer.ready()")
    row, moved = 0, motion(moving, [0])  # the fittest is shown first
    assert moving.best().index == row
    for value, step in ((0, 0), (1000, int(moved.steps[0]) - 1)):
        slide(browser, "time", value)
        places, turns = zip(*browser.run("explorer.links()"), strict=True)
        np.testing.assert_allclose(places, moved.position[0, step], atol=_poses.GRAIN)
        wanted = moved.rotation[0, step][:, [1, 2, 3, 0]]
        np.testing.assert_allclose(np.abs((np.array(turns) * wanted).sum(axis=1)), 1, atol=1e-4)


def test_the_camera_can_be_turned_and_put_back(browser, moving_page):
    browser.open(moving_page)
    browser.until("explorer.ready()")
    drawn(browser)
    begun = scene(browser)
    box = browser.run(
        "(b => [b.x + b.width / 2, b.y + b.height / 2])(document.getElementById('scene').getBoundingClientRect())"
    )
    browser.mouse("mousePressed", *box, button="left", clickCount=1)
    browser.mouse("mouseMoved", box[0] + 120, box[1] + 30, button="left", buttons=1)
    browser.mouse("mouseReleased", box[0] + 120, box[1] + 30, button="left", clickCount=1)
    drawn(browser)
    assert scene(browser) != begun
    browser.run("document.getElementById('reset').click()")
    drawn(browser)
    assert scene(browser) == begun


def test_keys_are_enough(browser, moving, moving_page):
    browser.open(moving_page)
    browser.until("explorer.ready()")
    for _ in range(8):
        browser.press("Tab")
        if browser.run("document.activeElement.id") == "marks":
            break
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert text(browser, "tip").startswith(f"Fitness {moving.fitness[0]:,.1f}")
    order = np.argsort(moving.centroids[:, 0]).tolist()
    place = order.index(int(moving.cell[0]))
    step, key = (1, "ArrowRight") if place < len(order) // 2 else (-1, "ArrowLeft")
    browser.press(key)
    row = order[place + step]  # the archive is full: rows are cells
    assert browser.run("document.getElementById('said').textContent").startswith(f"Fitness {moving.fitness[row]:,.1f}")
    browser.press("Enter")
    browser.until("explorer.playing()")
    assert f"{moving.fitness[row]:,.1f}" in text(browser, "facts")
    browser.press("Home")
    assert text(browser, "tip").startswith(f"Fitness {moving.fitness[0]:,.1f}")


@pytest.mark.parametrize("dims", [2, 4])
def test_arrow_keys_go_where_they_point(browser, archives, maps, dims):
    archive = archives[dims]
    browser.open(maps[dims], height=1100)
    browser.run("document.getElementById('marks').focus()")
    browser.press("Home")
    best = archive.best()
    assert text(browser, "tip").startswith(f"Fitness {best.fitness:,.1f}")
    said = set()
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowDown"):
        browser.press(key)
        said.add(text(browser, "tip"))
    assert len(said) >= 3 and all(each.startswith("Fitness") for each in said)


def test_an_elite_without_a_policy_says_so(browser, moving, moving_page):
    browser.open(moving_page)
    browser.until("explorer.ready()")
    browser.click(*browser.run(f"explorer.centre({moving.cell[-1]})"))
    assert "stored without its policy" in text(browser, "message")
    assert browser.run("document.getElementById('play').disabled")


def test_a_map_alone_says_why_nothing_moves(browser, maps):
    browser.open(maps[1])
    browser.until("document.getElementById('message').innerText.startsWith('No motion here')")
    assert browser.run("document.getElementById('play').disabled")


@pytest.mark.parametrize("dims", [1, 2, 4])
def test_a_narrow_screen_needs_no_scrolling_sideways(browser, maps, picture, dims):
    browser.open(maps[dims], width=390, height=844)
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert (
        browser.run("Math.max(...[...document.querySelectorAll('main *')].map(e => e.getBoundingClientRect().right))")
        <= 390
    )
    picture(f"phone_{dims}")


def test_light_and_dark(browser, archives, maps, picture):
    cell = empty_cell(archives[2])
    paper = "getComputedStyle(document.body).backgroundColor"
    seen = {}
    for dark in (False, True):
        browser.open(maps[2], dark=dark)
        seen[dark] = browser.run(paper), colour(browser, cell)
        picture("dark" if dark else "light")
    browser.run("document.getElementById('theme').click()")  # from dark to light, whatever the screen is set to
    assert (browser.run(paper), colour(browser, cell)) == seen[False]
    assert sum(seen[True][1]) < 200 < 600 < sum(seen[False][1])
