"""The parts of the benchmark: what is measured, and the rows that come of it."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from _bench_tools import HERE, Bench, Crowd, Side, Worker, each, per_second, ratios

# The six algorithms, and the rows of a generation of which all their evaluations are timed
BATCH = {"ascii_me": 512, "map_elites": 512, "pga_me": 256, "dcrl_me": 256, "memes": 504, "ppga": 300}
SIX = tuple(BATCH)
ANY_SIZE = ("ascii_me", "map_elites")  # whose batch size is free: the straightforward way gets the one that suits it
SLOW_ROUNDS = 2  # at most, of the others' generations, which take many seconds
TASKS = ("hopper_uni", "walker2d_uni", "ant_uni", "ant_omni", "anttrap_omni")
# (must, aim), or the most that it may be
PHYSICS = {"hopper": (3.0, 3.5), "walker2d": (4.0, 5.0), "ant": (5.0, 7.0)}
GENERATION = {
    "hopper_uni": (4.0, 7.0),
    "walker2d_uni": (4.5, 7.0),
    "ant_uni": (6.0, 10.0),
    "ant_omni": (6.5, 11.0),
    "anttrap_omni": (5.0, 8.0),
}
PLAYED = "PPO's steps"  # as `_bench_peers.py` names them
PEERS = {"pga_me": "<= 12", "dcrl_me": "<= 8"}  # seconds of a generation on all cores
# Rows that a device call makes, in as many generations as that takes: `fit` calls for about two seconds of them, too.
CALL = {"plain": 512, "ours": 2048}
SIZES = (32, 1024)  # least and greatest batch of the straightforward way
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def devices_rows(bench: Bench, what: str, seconds: dict[str, list[float]], answers: dict[str, dict]):
    """One device per core against one, which may use all cores, too, and against one on one core; how busy the cores
    were with either; and how much of what the machine gives to processes that share nothing."""
    busy = {side: answers[side]["worked"] / seconds[side][-1] for side in ("one", "all")}
    work = answers["all"]["worked"] / answers["one"]["worked"]
    note = f"busy cores {busy['one']:.2f} and {busy['all']:.2f}, work {work:.2f}x, in the last round"
    bench.row(f"{what}, {CORES} devices against 1", ratios(seconds["one"], seconds["all"]), ">= 1.8", "2", "x", note)
    if "core" in seconds:
        bench.row(f"{what}, {CORES} cores against 1", ratios(seconds["core"], seconds["all"]), ">= 1.8", "2", "x")
    if "crowd" in seconds:
        crowd = [t / CORES for t in seconds["crowd"]]
        given = f"{what}, {CORES} processes against 1 (what the machine gives)"
        bench.row(given, ratios(seconds["core"], crowd), unit="x")
        bench.row(f"{what}, {CORES} devices, share of that", ratios(crowd, seconds["all"]))


def physics(
    bench: Bench,
    robots,
    plain: Worker,
    core: Worker,
    sizes,
    ours: Mapping[str, Worker | Crowd],
    meanwhile: Sequence[Side] = (),
):
    """Steps of the environment only; one core, then one device against one per core. What is to be done `meanwhile` is
    while the first of them are compiled."""
    for robot in robots:
        must, aim = PHYSICS[robot]
        sides = {
            f"plain {size}": (plain, {"case": "physics", "robot": robot, "batch": size, "steps": 250}) for size in sizes
        }
        sides["ours"] = (core, {"case": "physics", "robot": robot, "batch": 256, "steps": 250})
        sides |= each(ours, {"case": "physics", "robot": robot, "batch": 1024, "steps": 250})
        bench.prepare(*meanwhile, *(sides[name] for name in ("ours", f"plain {sizes[0]}")))
        meanwhile = ()
        seconds, answers = bench.times(sides)
        cost = costs(seconds, answers)
        best = min((name for name in cost if name.startswith("plain")), key=lambda name: statistics.median(cost[name]))
        bench.row(
            f"physics of {robot}, one core",
            ratios(cost[best], cost["ours"]),
            f">= {must}",
            f"{aim}",
            "x",
            f"{per_second(1, cost['ours'])} steps against {per_second(1, cost[best])} ({best} environments)",
        )
        if ours:
            devices_rows(bench, f"physics of {robot}", seconds, answers)


def lesson(folder: Path, algorithm: str, task: str) -> dict:
    """The request to make the file that generations start from."""
    file = str(folder / f"{algorithm}_{task}.h5")
    return {"case": "learn", "algorithm": algorithm, "task": task, "batch": BATCH[algorithm], "file": file}


def learn(bench: Bench, worker: Worker | Crowd, folder: Path, algorithm: str, task: str) -> str:
    """The file that generations start from, which is made if it is not there."""
    request = lesson(folder, algorithm, task)
    if not Path(request["file"]).exists():
        bench.say(f"{algorithm} on {task}: learning")
        bench.prepare((worker, request))
    return request["file"]


def in_turn(
    bench: Bench, worker: Worker | Crowd, folder: Path, algorithm: str, tasks: Sequence[str]
) -> Iterator[tuple[str, str, list[Side]]]:
    """Each task, the file that its generations start from, and what the worker learns while others compile for them:
    the next one."""
    for task, later in zip(tasks, [*tasks[1:], None], strict=True):
        file = learn(bench, worker, folder, algorithm, task)
        yield task, file, [(worker, lesson(folder, algorithm, later))] if later else []


def calls(way: str, request: dict, batch: int) -> dict:
    """The request for generations of this size, in a device call as `fit` makes them."""
    return {**request, "batch": batch, "generations": max(1, CALL[way] // batch)}


def costs(seconds: dict[str, list[float]], answers: dict[str, dict]) -> dict[str, list[float]]:
    """Seconds for each of what was made."""
    return {name: [t / answers[name]["count"] for t in times] for name, times in seconds.items()}


def best_size(bench: Bench, worker: Worker, request: dict, sizes) -> int:
    """The batch size at which an evaluation costs least, by one generation of each."""
    if len(sizes) == 1:
        return sizes[0]
    cost, best, ahead = {}, 0, list(sizes)
    while ahead:
        size = ahead.pop(0)
        bench.prepare((worker, calls("plain", request, size)))
        answer = worker.run(**calls("plain", request, size))
        cost[size] = answer["seconds"] / answer["count"]
        best = min(cost, key=lambda size: cost[size])
        if not ahead:  # the best may be smaller, or larger, still
            next_sizes = [best // 2] * (best == min(cost)) + [best * 2] * (best == max(cost))
            ahead = [size for size in next_sizes if SIZES[0] <= size <= SIZES[1]]
    rates = ", ".join(f"{size}: {1 / each:,.0f}/s" for size, each in cost.items())
    bench.say(f"  the straightforward way by batch size: {rates}")
    return best


def generations(
    bench: Bench,
    folder: Path,
    algorithm: str,
    tasks,
    sizes,
    plain: Worker,
    ours: Mapping[str, Worker | Crowd],
):
    """Whole generations, and ASCII's variation alone, after some learning."""
    for task, file, meanwhile in in_turn(bench, ours["all"], folder, algorithm, tasks):
        request = {"algorithm": algorithm, "task": task, "batch": BATCH[algorithm], "file": file}
        whole = {"case": "generation", **request}
        wide = calls("ours", whole, BATCH[algorithm])
        bench.prepare(*meanwhile, *((plain, calls("plain", whole, size)) for size in sizes), (ours["one"], wide))
        size = best_size(bench, plain, whole, sizes)
        seconds, answers = bench.times({"plain": (plain, calls("plain", whole, size)), **each(ours, wide)})
        asked = [f">= {GENERATION[task][0]}", f"{GENERATION[task][1]}"] if algorithm == "ascii_me" else []
        against_plain(bench, request, costs(seconds, answers), size, *asked)
        devices_rows(bench, f"generation of {algorithm} on {task}", seconds, answers)
        if "core" in ours and algorithm == "ascii_me" and task in ("hopper_uni", "ant_omni"):
            variation(bench, request, task, plain, ours)


def slow_generations(bench: Bench, folder: Path, algorithm: str, tasks, plain: Worker, all_cores: Worker | Crowd):
    """Whole generations of an algorithm whose settings go with its batch, which both ways have."""
    for task, file, meanwhile in in_turn(bench, all_cores, folder, algorithm, tasks):
        request = {"algorithm": algorithm, "task": task, "batch": BATCH[algorithm], "file": file}
        sides = each({"plain": plain, "all": all_cores}, {"case": "generation", **request})
        bench.prepare(*meanwhile, sides["plain"])
        seconds, answers = bench.times(sides, min(bench.rounds, SLOW_ROUNDS))
        against_plain(bench, request, costs(seconds, answers), BATCH[algorithm])


def against_plain(bench: Bench, request: dict, cost: dict[str, list[float]], size: int, must="", aim=""):
    """The row of a generation, of this size the straightforward way."""
    bench.row(
        "generation of {algorithm} on {task}".format(**request),
        ratios(cost["plain"], cost["all"]),
        must,
        aim,
        "x",
        f"{per_second(1, cost['all'])} offspring against {per_second(1, cost['plain'])} at {size}",
    )


def variation(bench: Bench, request: dict, task: str, plain: Worker, ours: Mapping[str, Worker | Crowd]):
    case = {"case": "variation", **request}
    sides = {"plain": (plain, case), **each(ours, case), "matmul": (ours["all"], {"case": "matmul"})}
    seconds, answers = bench.times(sides)
    speed = {name: [answers[name]["flops"] / t / 1e9 for t in seconds[name]] for name in ("all", "matmul")}
    middle = {name: statistics.median(values) for name, values in speed.items()}
    bench.row(
        f"ASCII operator on {task}",
        ratios(seconds["plain"], seconds["all"]),
        unit="x",
        note=f"{per_second(512, seconds['all'])} children against {per_second(512, seconds['plain'])}",
    )
    devices_rows(bench, f"ASCII operator on {task}", seconds, answers)
    bench.row(
        f"ASCII operator on {task}, share of a plain matmul's speed",
        ratios(speed["all"], speed["matmul"]),
        note="{all:.0f} of {matmul:.0f} GFLOP/s (steps of living targets only)".format(**middle),
    )


def scaling(bench: Bench, folder: Path, task: str, sizes, ours: Mapping[str, Worker | Crowd]):
    file = folder / f"ascii_me_{task}.h5"
    request = {"case": "generation", "algorithm": "ascii_me", "task": task, "file": str(file)}
    cost = costs(*bench.times({str(size): (ours["all"], calls("ours", request, size)) for size in sizes}))
    for size in sizes[1:]:
        last = size == sizes[-1]
        bench.row(
            f"cost per evaluation on {task}, batch {size} against {sizes[0]}",
            ratios(cost[str(size)], cost[str(sizes[0])]),
            "<= 1.15" if last else "",
            "1" if last else "",
            "x",
        )
    for size in (sizes[0], sizes[-1]):
        seconds, answers = bench.times(each(ours, calls("ours", request, size)))
        devices_rows(bench, f"generation of ascii_me on {task}, batch {size}", seconds, answers)


def checkpoints(bench: Bench, folder: Path, task: str, all_cores: Worker | Crowd):
    """What saving costs: a run that saves every second generation against one that does not."""
    generations, every, file = 30, 2, folder / "checkpointed.h5"
    request = {"case": "checkpoints", "task": task, "generations": generations, "file": str(file)}
    request["learned"] = str(folder / f"ascii_me_{task}.h5")
    sides = {
        "without": (all_cores, {**request, "every": None}),
        "with": (all_cores, {**request, "every": every}),
    }
    seconds, answers = bench.times(sides)
    each = [(b - a) / (generations / every) for a, b in zip(seconds["without"], seconds["with"], strict=True)]
    bench.row(
        f"a checkpoint a minute of {task}, share of the run",
        [100 * cost / 60 for cost in each],
        "<= 2",
        "",
        " %",
        f"{1000 * statistics.median(each):.0f} ms each",
    )
    raw, stored = answers["with"]["raw_bytes"], file.stat().st_size
    bench.row(f"file of {task}, compressed", [stored / 1e6], unit=" MB", note=f"{raw / 1e6:.1f} MB uncompressed")


def starts(bench: Bench, folder: Path, tasks):
    """From the start of the process to the end of the first generation, without and with compiled programs at hand;
    and what a compilation is made of."""

    def parts(task: str, cache: str, *words: str) -> tuple[float, str]:
        """The first figure of a start, and the others in words."""
        command = [sys.executable, str(HERE / "_bench_start.py"), task, str(time.time()), *words]
        surroundings = {**os.environ, "ASCIIME_CACHE": cache}
        done = subprocess.run(command, check=True, env=surroundings, stdout=subprocess.PIPE, text=True)
        (_, seconds), *others = json.loads(done.stdout).items()
        return seconds, ", ".join(f"{part} {spent:.1f} s" for part, spent in others)

    for task in tasks:
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            for name, limit in (("cold", "<= 30"), ("warm", "<= 8")):
                seconds, note = parts(task, cache)
                bench.row(f"first generation on {task}, {name} start", [seconds], limit, "", " s", note)
        with tempfile.TemporaryDirectory(dir=folder) as profile:
            seconds, note = parts(task, "off", profile)
            bench.row(f"compiling {task}", [seconds], unit=" s", note=note)


def gymnasium(bench: Bench, robots, count: int = 256, steps: int = 1000, few_steps: int = 200):
    """Steps of our vector environment against the bare physics, and beside Gymnasium's own robots in processes."""
    script = "_bench_gymnasium.py"
    with Worker("ours", CORES, CORES, script=script) as ours, Worker("theirs", 1, CORES, script=script) as theirs:
        for robot in robots:
            request = {"robot": robot, "num_envs": count, "steps": steps}
            sides = {
                "bare": (ours, {"case": "bare", **request}),
                "numpy": (ours, {"case": "environment", **request}),
                "jax": (ours, {"case": "environment", "array_type": "jax", **request}),
            }
            few = {number: f"theirs {number}" for number in (CORES, 8 * CORES)}
            for number, name in few.items():
                sides[name] = (theirs, {"case": "theirs", "robot": robot, "num_envs": number, "steps": few_steps})
            seconds, _ = bench.times(sides)
            best = min(few, key=lambda number: statistics.median(seconds[few[number]]) / number)
            rate = per_second(count * steps, seconds["numpy"])
            what = f"vector environment of {count} {robot}s, share of the bare physics' speed"
            bench.row(what, ratios(seconds["bare"], seconds["numpy"]), ">= 0.8", "1", note=f"{rate} steps")
            rate = per_second(count * steps, seconds["jax"])
            bench.row(f"{what}, JAX arrays", ratios(seconds["bare"], seconds["jax"]), note=f"{rate} steps")
            cost = [t / best / few_steps for t in seconds[few[best]]], [t / count / steps for t in seconds["numpy"]]
            rate = per_second(best * few_steps, seconds[few[best]])
            what = f"vector environment of {count} {robot}s against Gymnasium's MuJoCo in processes"
            bench.row(what, ratios(*cost), unit="x", note=f"theirs: {rate} steps with {best} processes")
            theirs.run(case="end")


def peers(bench: Bench, task: str, names, rounds: int):
    """A generation of each algorithm on one core and on all, what it is made of, and what an evaluation costs."""
    cost: dict[str, float] = {}
    for name in names:
        fields = {} if name in ("memes", "ppga") else {"batch_size": 256}
        for cores in dict.fromkeys((1, CORES)):
            with Worker("ours", cores, cores, script="_bench_peers.py") as worker:
                answer = worker.run(algorithm=name, task=task, rounds=rounds, **fields)
            walls = {part: [wall for wall, _ in times] for part, times in answer["times"].items()}
            middle = {part: statistics.median(times) for part, times in walls.items()}
            cost[name] = middle["generation"] / answer["evaluations"]
            split = ", ".join(f"{part} {middle[part]:.2f} s" for part in ("ask", "evaluate", "tell"))
            limit = PEERS.get(name, "") if cores == CORES else ""
            what = (
                f"generation of {name} on {task}, {answer['evaluations']:,} evaluations, {cores} core{'s'[: cores > 1]}"
            )
            note = f"{split}; {1 / cost[name]:,.0f} evaluations/s"
            bench.row(what, walls["generation"], limit, limit and limit.split()[1], " s", note)
            played = [100 * a / b for a, b in zip(walls.get(PLAYED, []), walls["generation"], strict=False)]
            if played:
                bench.row(f"{PLAYED} of {name} on {task}, {cores} core{'s'[: cores > 1]}, share", played, unit=" %")
            bounds(bench, f"{name} on {task}, {cores} core{'s'[: cores > 1]}", walls, answer["flops"])
    for name in [name for name in names if name != "ascii_me" and "ascii_me" in names]:
        what = f"evaluations of ascii_me in the time of one of {name}, {task}, {CORES} cores"
        bench.row(what, [cost[name] / cost["ascii_me"]], unit="x")


def bounds(bench: Bench, what: str, walls: dict[str, list[float]], flops: dict[str, float]):
    """What bounds the training: how near it comes to what the cores can multiply."""
    speed = {part: [each / t / 1e9 for t in walls[part]] for part, each in flops.items()}
    most = speed.pop("matrix product")
    for part, reached in speed.items():
        ours, theirs, taken = (statistics.median(values) for values in (reached, most, walls[part]))
        note = f"{ours:.0f} of {theirs:.0f} GFLOP/s, {taken:.2f} s"
        bench.row(f"{part} of {what}, share of a plain matmul's speed", ratios(reached, most), note=note)


def memory(bench: Bench, limits: dict[int, float]):
    for batch, limit in limits.items():
        with Worker("ours", CORES, CORES, {"ASCIIME_CACHE": "off"}) as worker:  # compiling takes memory, too
            peak = worker.run(case="memory", task="ant_omni", batch=batch, generations=2)["peak_bytes"] / 2**30
        bench.row(f"peak memory of ant_omni, batch {batch}", [peak], f"<= {limit}", "", " GiB")
