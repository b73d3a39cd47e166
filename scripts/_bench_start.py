"""A start, as of the command line: how long until the first generation is there, and what the time went to.

    python scripts/_bench_start.py TASK BEGIN [FOLDER]

BEGIN is the time (seconds since the epoch) at which the process was started. What is printed is JSON: seconds until
the end of the first generation, of tracing, lowering and compiling the longest program, and of work on all cores.
With FOLDER a profile is written there, and what is printed is what compiling that program was made of.
"""

import contextlib
import json
import sys
import time
from pathlib import Path

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}


KERNELS = "TaskDispatcher::dispatch"  # makes machine code of some kernels; several at once, on several threads
STAGES = {"whole": "PjRtCpuClient::Compile", "after": "CpuCompiler::RunBackend", "kernels": "JitCompiler::Compile"}


def compilation(folder: str) -> dict[str, float]:
    """Seconds that the longest compilation in a profile took, and of what."""
    from jax.profiler import ProfileData

    (file,) = Path(folder).rglob("*.xplane.pb")
    lines = [line for plane in ProfileData.from_file(str(file)).planes for line in plane.lines]
    events = [(event.name, event.start_ns, event.duration_ns / 1e9) for line in lines for event in line.events]
    longest = {
        stage: max((seconds, start) for name, start, seconds in events if name == wanted)
        for stage, wanted in STAGES.items()
    }
    seconds = {stage: seconds for stage, (seconds, _) in longest.items()}
    begin = longest["kernels"][1]
    end = begin + 1e9 * seconds["kernels"]
    work = sorted(s for name, start, s in events if name == KERNELS and longest["after"][1] <= start <= end)
    return {
        "compiling": seconds["whole"],
        "passes over the program": seconds["whole"] - seconds["after"],
        "emitting": seconds["after"] - seconds["kernels"],
        "waiting for LLVM": seconds["kernels"],
        "LLVM on all cores": sum(work),
        "of it the ten longest of its tasks": sum(work[-10:]),
    }


def main(name: str, begin: float, folder: str | None = None):
    import jax
    from jax import monitoring

    longest = dict.fromkeys(EVENTS.values(), 0.0)

    def listen(event: str, duration_secs: float, **_: str | int):
        if event in EVENTS:  # a program's time contains that of the smaller ones it is made of
            longest[EVENTS[event]] = max(longest[EVENTS[event]], duration_secs)

    monitoring.register_event_duration_secs_listener(listen)
    from asciime_gym._process import prepare

    prepare()
    import asciime_gym as ag
    import asciime_gym.__main__  # what a start of the command line imports besides

    optimizer = ag.Optimizer(ag.AsciiME(), ag.make_task(name))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    profile = jax.profiler.trace(folder, profiler_options=options) if folder else contextlib.nullcontext()
    with profile:
        optimizer.fit(evaluations=1, progress=False)
    assert optimizer.generation == 1
    if folder:
        print(json.dumps(compilation(folder)), flush=True)
        return
    print(json.dumps({"seconds": time.time() - begin, **longest, "work": time.process_time()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
