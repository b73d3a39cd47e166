"""Shapes and types are enforced in the tests: the hook has to be there before the package is imported."""

from jaxtyping import install_import_hook

install_import_hook("asciime_gym", "typecheck.checked")

import pytest  # noqa: E402

import asciime_gym as ag  # noqa: E402
from asciime_gym._process import prepare  # noqa: E402

prepare()  # compiled programs are kept between test runs


@pytest.fixture(scope="session")
def tasks() -> dict[str, ag.AbstractSimulator]:
    """The five tasks; one object each, so that what a test compiles serves the next."""
    return {name: ag.make_task(name) for name in ag.TASKS}
