"""A start of the command line that says, besides, what its time went to.

    python scripts/_bench_start.py OPTIONS OF asciime …

The last line begins with `@`: seconds of tracing, lowering and compiling the longest program, and of work on all cores.
"""

import json
import sys
import time

from jax import monitoring

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}


def main():
    longest = dict.fromkeys(EVENTS.values(), 0.0)

    def listen(event: str, duration_secs: float, **_: str | int):
        if event in EVENTS:  # a program's time contains that of the smaller ones it is made of
            longest[EVENTS[event]] = max(longest[EVENTS[event]], duration_secs)

    monitoring.register_event_duration_secs_listener(listen)
    from asciime_gym.__main__ import main as asciime

    asciime()
    print("@" + json.dumps({**longest, "work": time.process_time()}), flush=True)


if __name__ == "__main__":
    sys.argv[0] = "asciime"
    main()
