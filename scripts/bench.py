"""How fast: ratios against the straightforward way, measured side by side.

    .venv/bin/python scripts/bench.py            everything, which is long work; --only takes a part
    .venv/bin/python scripts/bench.py --quick    the hopper only, in under 3 minutes

The straightforward way is what public libraries do: one device, `jax.vmap` over `env.step`, always to the end of the
episode. Every figure is a ratio of times taken in turns, so that a machine that is slower for a while is slower for
both; what is printed is the median of the rounds and, in brackets, the lowest and the highest.
"""

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from _bench_parts import (
    ANY_SIZE,
    CORES,
    PHYSICS,
    SIX,
    TASKS,
    checkpoints,
    generations,
    gymnasium,
    learn,
    lesson,
    memory,
    peers,
    physics,
    scaling,
    slow_generations,
    starts,
)
from _bench_tools import Bench, Crowd, Worker, report, taken_away

PARTS = ("physics", "generations", "scaling", "checkpoints", "starts", "memory", "gymnasium", "peers")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the hopper only, fewer rounds; 3 minutes")
    parser.add_argument("--rounds", type=int, help="how often each side is timed at least (default 5; 3 with --quick)")
    parser.add_argument("--out", help="path of the JSON and PNG files, without suffix (default runs/bench)")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, help="only these tasks' generations and starts")
    parser.add_argument(
        "--algorithms",
        nargs="+",
        choices=SIX,
        help="only these (default: all six; only the first with --quick)",
    )
    args = parser.parse_args()
    args.parts = args.only or (PARTS[:2] if args.quick else PARTS)
    args.rounds = args.rounds or (3 if args.quick else 5)
    args.tasks = args.tasks or (TASKS[:1] if args.quick else TASKS)
    args.peers = args.algorithms or SIX
    args.algorithms = args.algorithms or (SIX[:1] if args.quick else SIX)
    args.out = Path(args.out or ("runs/bench_quick" if args.quick else "runs/bench"))
    return args


def measure(bench: Bench, args: argparse.Namespace, folder: Path):
    with ExitStack() as stack:
        worker = lambda *kind, **more: stack.enter_context(Worker(*kind, **more))
        plain, core = worker("plain", 1, CORES), worker("ours", 1, 1)
        ours: dict[str, Worker | Crowd] = {"one": worker("ours", 1, CORES), "all": worker("ours", CORES, CORES)}
        if not args.quick:
            ours["core"] = core
        if not args.quick and CORES > 1:
            ours["crowd"] = Crowd([core, *(worker("ours", 1, 1, first=number) for number in range(1, CORES))])
        if "physics" in args.parts:
            alone = worker("plain", 1, 1, first=CORES - 1), core  # each on a core of its own, where it compiles, too
            soon = [(ours["all"], lesson(folder, args.algorithms[0], args.tasks[0]))]
            first = soon if "generations" in args.parts else []
            if args.quick:
                physics(bench, ("hopper",), *alone, (128,), {}, first)
            else:
                physics(bench, PHYSICS, *alone, (64, 256, 1024), ours, first)
        if "generations" in args.parts:
            for algorithm in args.algorithms:
                if algorithm in ANY_SIZE:
                    sizes = (256,) if args.quick else (64, 256)
                    generations(bench, folder, algorithm, args.tasks, sizes, plain, ours)
                else:
                    slow_generations(bench, folder, algorithm, args.tasks, plain, ours["all"])
        later = {"scaling", "checkpoints"} & set(args.parts)
        if later:
            learn(bench, ours["all"], folder, "ascii_me", "hopper_uni")
        if "checkpoints" in args.parts:
            checkpoints(bench, folder, "hopper_uni", ours["all"])
        if "scaling" in args.parts:
            scaling(bench, folder, "hopper_uni", (256, 512, 2048, 8192), ours)
    if "starts" in args.parts:
        starts(bench, folder, args.tasks)
    if "memory" in args.parts:
        memory(bench, {4096: 6.0, 8192: 10.0})
    if "gymnasium" in args.parts:
        gymnasium(bench, ("hopper",) if args.quick else PHYSICS)
    if "peers" in args.parts:
        peers(bench, "hopper_uni", args.peers, args.rounds)


def main():
    args = options()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    bench = Bench(args.rounds, seconds=10.0 if args.quick else 60.0)
    complete, before = False, taken_away()
    try:
        with tempfile.TemporaryDirectory() as folder:
            measure(bench, args, Path(folder))
        complete = True
    finally:  # what was measured is not lost to Ctrl-C or an error
        wanted, lost = (now - then for now, then in zip(taken_away(), before, strict=True))
        if wanted:
            bench.row(
                "share of the cores' time that the machine's host gave to others", [100 * lost / wanted], unit=" %"
            )
        report(bench.rows, CORES, complete, args.out)


if __name__ == "__main__":
    main()
