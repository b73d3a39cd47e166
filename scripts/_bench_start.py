"""A start, as of the command line: how long until the first generation is there, and what the time went to.

    python scripts/_bench_start.py TASK BEGIN

BEGIN is the time (seconds since the epoch) at which the process was started. What is printed is JSON: seconds until
the end of the first generation, of tracing, lowering and compiling the longest program, and of work on all cores.
"""

import json
import sys
import time

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}


def main(name: str, begin: float):
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
    optimizer.fit(evaluations=1, progress=False)
    assert optimizer.generation == 1
    print(json.dumps({"seconds": time.time() - begin, **longest, "work": time.process_time()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
