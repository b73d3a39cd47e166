"""What the benchmark is made of: processes that run its cases, its rows, its table and its picture."""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

HERE = Path(__file__).resolve().parent
MORE = 5  # what takes little time is timed so many times as often, at most


class Worker:
    """A process that runs cases one way."""

    def __init__(
        self,
        way: str,
        devices: int,
        cores: int,
        environment: dict[str, str] | None = None,
        script: str = "_bench_worker.py",
        first: int = 0,
    ):
        self.programs = way, devices, script  # workers alike in these run the same programs
        self.name = f"{way}, {devices} device{'s'[: devices > 1]}, {cores} core{'s'[: cores > 1]}"
        command = [sys.executable, str(HERE / script), way, str(devices), str(cores)]
        command += [str(first)] if first else []
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **(environment or {})}
        )

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()

    def run(self, **request) -> dict:
        """The answer to a request, which is a case and what it takes."""
        self.send(request)
        return self.answer()

    def send(self, request: dict):
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request, sort_keys=True) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict:
        """To the oldest request that has none yet."""
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        raise RuntimeError(f"the worker ({self.name}) ended before it answered; its message is above")


class Crowd:
    """Processes that share nothing and do the same at the same time, as one side: it takes as long as the slowest."""

    def __init__(self, workers: Sequence[Worker]):
        self.workers, self.programs = workers, workers[0].programs
        self.name = f"{len(workers)} times {workers[0].name}"

    def send(self, request: dict):
        for worker in self.workers:
            worker.send(request)

    def answer(self) -> dict:
        answers = [worker.answer() for worker in self.workers]
        kind = "first" if any("first" in answer for answer in answers) else "seconds"
        return {**answers[0], kind: max(answer.get(kind, 0.0) for answer in answers)}

    def run(self, **request) -> dict:
        self.send(request)
        return self.answer()


Side: TypeAlias = tuple[Worker | Crowd, dict]  # who does what


def waves(sides: Mapping[str, Side]) -> list[dict[str, Side]]:
    """The sides in groups: what one compiles, those of later groups find kept."""
    groups: list[dict] = []
    for name, (worker, request) in sides.items():
        program = worker.programs, json.dumps(request)
        free = next((group for group in groups if program not in group), None)
        if free is None:
            groups.append(free := {})
        free[program] = name
    return [{name: sides[name] for name in group.values()} for group in groups]


class Bench:
    """Rows of the table, as they are measured."""

    def __init__(self, rounds: int, seconds: float):
        self.rounds, self.seconds, self.rows, self.begin = rounds, seconds, [], time.monotonic()
        self._prepared: set[tuple[Worker | Crowd, str]] = set()

    def say(self, text: str):
        print(f"[{time.monotonic() - self.begin:5.0f} s] {text}", flush=True)

    def prepare(self, *sides: Side):
        """Runs what is not to be timed, all at once and once only: what compiles, or learns."""
        names = [(worker, json.dumps(request, sort_keys=True)) for worker, request in sides]
        new = [side for side, name in zip(sides, names, strict=True) if name not in self._prepared]
        self._prepared.update(names)
        for worker, request in new:
            worker.send(request)
        for worker, request in new:
            answer = worker.answer()
            if "first" in answer:
                what = " ".join(str(value) for key, value in request.items() if key not in ("file", "learned"))
                self.say(f"  {what} ({worker.name}): compiled and run in {answer['first']:.1f} s")

    def times(
        self, sides: Mapping[str, Side], rounds: int | None = None
    ) -> tuple[dict[str, list[float]], dict[str, dict]]:
        """Seconds of each side, round by round, and the last answer of each; more rounds where they are short, unless
        it is said how many."""
        for some in waves(sides):
            self.prepare(*some.values())
        seconds, answers = {name: [] for name in sides}, {}
        least, most = (rounds, rounds) if rounds else (self.rounds, MORE * self.rounds)
        done, begin = 0, time.monotonic()
        while done < least or (done < most and time.monotonic() - begin < self.seconds):
            for name, (worker, request) in sides.items():
                answers[name] = worker.run(**request)
                seconds[name].append(answers[name]["seconds"])
            done += 1
        return seconds, answers

    def row(self, what: str, values: list[float], must: str = "", aim: str = "", unit: str = "", note: str = ""):
        middle = statistics.median(values)
        self.rows.append(
            {
                "what": what,
                "median": middle,
                "low": min(values),
                "high": max(values),
                "unit": unit,
                "must": must,
                "aim": aim,
                "note": note,
                "rounds": values,
            }
        )
        spread = f" [{min(values):.2f}, {max(values):.2f}]" if len(values) > 1 else ""
        asked = f"   must {must}, aim {aim}" if must else ""
        self.say(f"{what}: {middle:.2f}{unit}{spread}{asked}   {note}")


def taken_away() -> tuple[int, int]:
    """Time that the cores were wanted for, and how much of it a virtual machine's host gave to others; Linux only."""
    statistics_file = Path("/proc/stat")
    if not statistics_file.exists():
        return 0, 0
    user, nice, system, _, _, irq, softirq, steal = map(int, statistics_file.read_text().split()[1:9])
    return user + nice + system + irq + softirq + steal, steal


def each(workers: Mapping[str, Worker | Crowd], request: dict) -> dict[str, Side]:
    """Sides that do the same."""
    return {name: (worker, request) for name, worker in workers.items()}


def ratios(above: list[float], below: list[float]) -> list[float]:
    return [a / b for a, b in zip(above, below, strict=True)]


def per_second(count: float, seconds: list[float]) -> str:
    return f"{count / statistics.median(seconds):,.0f}/s"


def holds(row: dict) -> str:
    if not row["must"]:
        return ""
    sign, limit = row["must"].split()
    good = row["median"] >= float(limit) if sign == ">=" else row["median"] <= float(limit)
    return "yes" if good else "no"


def table(rows: list[dict]) -> str:
    lines = ["| | measured | lowest to highest | must | aim | holds | |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        spread = f"{row['low']:.2f} to {row['high']:.2f}" if row["low"] != row["high"] else ""
        cells = [
            row["what"],
            f"{row['median']:.2f}{row['unit']}",
            spread,
            row["must"],
            row["aim"],
            holds(row),
            row["note"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: list[dict], file: Path):
    """The ratios as bars with their spread, and marks at what they must reach."""
    from asciime_gym.analysis._optional import pyplot

    plt = pyplot()
    rows = [row for row in rows if row["unit"] == "x"][::-1]
    figure, axes = plt.subplots(figsize=(9, 0.32 * len(rows) + 1.2), layout="constrained")
    middle = [row["median"] for row in rows]
    errors = [[row["median"] - row["low"] for row in rows], [row["high"] - row["median"] for row in rows]]
    axes.barh(range(len(rows)), middle, xerr=errors, color="#4878a8", ecolor="#333333", height=0.6)
    for place, row in enumerate(rows):
        if row["must"]:
            sign, limit = row["must"].split()
            color = "#c44e52" if sign == ">=" else "#dd8452"
            axes.plot([float(limit)] * 2, [place - 0.4, place + 0.4], color=color, lw=2)
    axes.set_yticks(range(len(rows)), [row["what"] for row in rows], fontsize=8)
    axes.set_xlabel("ratio of times measured in turns (red: at least, orange: at most)")
    axes.axvline(1, color="#999999", lw=0.8)
    axes.margins(y=0.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file, dpi=130)


def report(rows: list[dict], cores: int, complete: bool, out: Path):
    """Prints the table, and writes it as JSON and as a picture; one that is not complete beside the last that was."""
    if not rows:
        return
    if not complete:
        out = out.with_name(f"{out.name}_stopped")
    print("\n" + table(rows))
    figures = {"cores": cores, "machine": platform.processor() or platform.machine(), "rows": rows}
    out.with_suffix(".json").write_text(json.dumps(figures, indent=1))
    draw(rows, out.with_suffix(".png"))
    print(f"\nwritten: {out.with_suffix('.json')}, {out.with_suffix('.png')}")
