"""Shapes and types are enforced in the tests: the hook has to be there before the package is imported."""

from jaxtyping import install_import_hook

install_import_hook("asciime_gym", "typecheck.checked")

import gc  # noqa: E402
import os  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from pathlib import Path  # noqa: E402

import jax  # noqa: E402
import pytest  # noqa: E402

import asciime_gym as ag  # noqa: E402
from asciime_gym import _compile  # noqa: E402
from asciime_gym._process import prepare  # noqa: E402

# What tests compile of their own, references above all, runs once or twice: the compiler need not try hard, which takes
# less than half the time. Our doors (`compiled`), and processes that tests start, are compiled as users have them.
HASTE = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
_compile.OPTIONS["cpu"] = {"xla_cpu_use_fusion_emitters": True, **_compile.OPTIONS["cpu"]}

prepare()  # compiled programs are kept between test runs
if kept := jax.config.jax_compilation_cache_dir:  # but apart: nobody else is to find what was made in haste
    jax.config.update("jax_compilation_cache_dir", f"{kept}/tests")
with pytest.MonkeyPatch.context() as surroundings:
    surroundings.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {HASTE}")
    jax.numpy.zeros(1).block_until_ready()  # reads them, and opens that cache for good


# Files that take minutes come first, so that at the end no worker is alone with one of them.
LONG = ("test_tasks", "test_kill", "test_promises", "test_hostile_files", "test_lanes", "test_gymnasium_vector",
        "test_shipped", "test_actor_critic", "test_devices", "test_processes", "test_learning")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]):
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


MAPS = Path("/proc/self/maps")
MANY = 15_000  # mappings of memory; Linux allows a process 65,530, and each compiled program takes some


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """Lets go of compiled programs after a file of tests, before there are so many that the next aborts the process."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="session")
def tasks() -> dict[str, ag.AbstractSimulator]:
    """The five tasks; one object each, so that what a test compiles serves the next."""
    return {name: ag.make_task(name) for name in ag.TASKS}
