"""Programs of ours keep the memory that a device call frees for the next one."""

import subprocess
import sys

import pytest

CALLS, MEGABYTES = 20, 40  # more than 32: else glibc may keep it by itself
SCRIPT = f"""
import resource, sys
import jax, jax.numpy as jnp
from asciime_gym._process import keep_memory

if sys.argv[1] == "kept":
    keep_memory()
program = jax.jit(lambda x: x + 1)
x = jnp.zeros({MEGABYTES} * 2**18)
for call in range({CALLS + 5}):
    if call == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    program(x).block_until_ready()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize() / 2**20)
"""


def handed_out_anew(way: str) -> float:
    """Megabytes that the kernel had to hand out during the calls."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, way], capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_memory_is_not_handed_out_anew():
    assert handed_out_anew("given back") > CALLS * MEGABYTES / 2  # else there would be nothing to keep
    assert handed_out_anew("kept") < CALLS * MEGABYTES / 4
