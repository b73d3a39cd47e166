"""A comparison as tables: for a terminal, as Markdown, as CSV."""

import csv
import dataclasses
import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._comparison import Comparison
else:
    Comparison = Any  # it imports this module

METRIC_WORDS = {"qd_score": "QD score", "coverage": "coverage (%)", "max_fitness": "best fitness"}
_NOTE = "median [lower quartile–upper quartile] over seeds"
_TEST_NOTE = (
    "A: chance that a run of the first is the better one (1/2: no difference); p: corrected (Holm), * if below {:g}"
)


_BREAK = re.compile(r" (?=\[|\(|: )|(?<=,) (?=p )")


class Sheet(NamedTuple):
    """A table of text."""

    title: str
    note: str
    columns: list[str]
    rows: list[list[str]]


def sheets(comparison: Comparison) -> list[Sheet]:
    """A comparison's tables, in the order in which they are read."""
    found = []
    for task, axis, spent in dict.fromkeys((f.task, f.axis, f.spent) for f in comparison.figures):
        title = f"{task} at {_spent(axis, spent)}"
        figures = [f for f in comparison.figures if (f.task, f.axis) == (task, axis)]
        found.append(_figures(title, figures))
        tests = [t for t in comparison.tests if (t.task, t.axis) == (task, axis)]
        found += [_tests(f"{title}: differences", tests, comparison.alpha)] if tests else []
    if comparison.batch_sizes:
        found.append(_efficiency(comparison.batch_sizes))
    if comparison.variation:
        rows = [
            [v.algorithm, f"{v.batch_sizes}", f"{v.tasks}", f"{100 * v.variation:.1f}"] for v in comparison.variation
        ]
        note = "standard deviation of the QD score over batch sizes, in % of its mean; mean over tasks"
        found.append(Sheet("Coefficient of variation", note, ["algorithm", "batch sizes", "tasks", "%"], rows))
    return found


def _spent(axis: str, spent: float) -> str:
    return f"{spent:,.0f} evaluations" if axis == "evaluations" else f"{spent:,.4g} seconds"


def _figures(title: str, figures: Sequence[Any]) -> Sheet:
    metrics = list(dict.fromkeys(figure.metric for figure in figures))
    rows = []
    for algorithm in dict.fromkeys(figure.algorithm for figure in figures):
        own = {figure.metric: figure for figure in figures if figure.algorithm == algorithm}
        cells = [_quartiles(own[metric]) for metric in metrics]
        rows.append([algorithm, str(own[metrics[0]].seeds), *cells])
    return Sheet(title, _NOTE, ["algorithm", "seeds", *(METRIC_WORDS[metric] for metric in metrics)], rows)


def _quartiles(figure: Any) -> str:
    scale = 100 if figure.metric == "coverage" else 1
    median, lower, upper = (_number(scale * value) for value in (figure.median, figure.lower, figure.upper))
    return f"{median} [{lower}–{upper}]"


def _number(value: float) -> str:
    """Four digits, or all before the point."""
    if value != value or value == float("-inf"):
        return "none"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _tests(title: str, tests: Sequence[Any], alpha: float) -> Sheet:
    metrics = list(dict.fromkeys(test.metric for test in tests))
    rows = []
    for first, second in dict.fromkeys((test.first, test.second) for test in tests):
        own = {test.metric: test for test in tests if (test.first, test.second) == (first, second)}
        rows.append([f"{first} : {second}", *(_test(own[metric]) for metric in metrics)])
    return Sheet(title, _TEST_NOTE.format(alpha), ["pair", *(METRIC_WORDS[metric] for metric in metrics)], rows)


def _test(test: Any) -> str:
    return f"A {test.a:.2f}, p {_p(test.p_holm)}{'*' if test.significant else ''}"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else f"{value:.0e}"


def _efficiency(records: Sequence[Any]) -> Sheet:
    sizes = sorted({record.batch_size for record in records})
    rows = []
    for algorithm in dict.fromkeys(record.algorithm for record in records):
        own = {record.batch_size: record for record in records if record.algorithm == algorithm}
        show = lambda record: f"{record.efficiency:.2f}{' (best)' if record.best else ''}"
        rows.append([algorithm, *(show(own[size]) if size in own else "" for size in sizes)])
    note = "min-max QD score x (1 - min-max runtime) over batch sizes, mean over tasks"
    return Sheet("Efficiency score by batch size", note, ["algorithm", *(f"{size:,}" for size in sizes)], rows)


def markdown(tables: Sequence[Sheet], cautions: Sequence[str]) -> str:
    """Tables with headings; what is to be careful about comes first."""
    line = lambda cells: "| " + " | ".join(cell.replace("|", "\\|").replace("*", "\\*") for cell in cells) + " |"
    parts = ["\n".join(f"> **Caution.** {_plain(caution)}\n" for caution in cautions)] if cautions else []
    for table in tables:
        rule = line(["---", *("---:" for _ in table.columns[1:])])
        body = "\n".join([line(table.columns), rule, *map(line, map(_plain_row, table.rows))])
        parts.append(f"### {_plain(table.title)}\n\n{table.note.replace('*', chr(92) + '*')}\n\n{body}\n")
    return "\n".join(parts)


def rich_tables(tables: Sequence[Sheet], cautions: Sequence[str], width: int) -> Any:
    """Tables for a terminal of so many columns."""
    from rich.console import Group
    from rich.text import Text

    parts = [part for sheet in tables for part in (_rich_table(sheet, width), "")]
    return Group(*parts, *(Text(f"caution: {_plain(caution)}", style="yellow") for caution in cautions))


def _rich_table(sheet: Sheet, width: int) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    rows = [sheet.columns, *map(_plain_row, sheet.rows)]
    wide = sum(max(map(len, column)) + 3 for column in zip(*rows, strict=True))
    # Where lines would be broken anywhere, they are broken where it makes sense: no number is cut off.
    broken = lambda cell: cell if wide <= width else _BREAK.sub("\n", cell)
    title, note = Text(_plain(sheet.title), style="bold"), Text(sheet.note)
    table = Table(title=title, caption=note, title_justify="left", caption_justify="left", box=SIMPLE_HEAD)
    for place, column in enumerate(sheet.columns):
        table.add_column(Text(column), justify="right" if place else "left", overflow="fold")
    for row in rows[1:]:
        table.add_row(*(Text(broken(cell)) for cell in row))
    return table


def csv_text(tables: dict[str, Sequence[Any]]) -> str:
    """Every record a row; columns that a table does not have are empty."""
    records = [{"table": name} | dataclasses.asdict(record) for name, found in tables.items() for record in found]
    columns = list(dict.fromkeys(column for record in records for column in record))
    page = io.StringIO()
    writer = csv.DictWriter(page, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return page.getvalue()


def _plain(text: str) -> str:
    """A text that a file may have a part in, without what a terminal would take for an instruction."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _plain_row(row: Sequence[str]) -> list[str]:
    return [_plain(cell) for cell in row]
