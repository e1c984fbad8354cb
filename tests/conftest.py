"""Fixtures and Hypothesis profiles shared by all tests.

Profiles: ``default`` (new examples each run), ``ci`` (the same ones each run; taken when CI is
set), ``nightly`` (``HYPOTHESIS_PROFILE=nightly``).
"""

import gc
import os

os.environ["MINISITCH_DEVICE"] = "0"  # before anything asks for this machine: no test depends on a user's device file
os.environ["MINISITCH_PLANS"] = "0"  # tests change how strategies decide: what they plan is not for later

import numpy as np
import pytest
from explorer_help import centred, cut_up, server  # noqa: F401  fixtures
from golden import golden  # noqa: F401  a fixture
from hypothesis import HealthCheck, settings

import minisitch.strategies  # noqa: F401  registers them
from minisitch.fuse import STRATEGIES

COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("default", max_examples=25, **COMMON)
settings.register_profile("ci", max_examples=25, derandomize=True, print_blob=True, **COMMON)
settings.register_profile("nightly", max_examples=3000, **COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden texts instead of comparing")


gc.set_threshold(100_000, 20, 20)  # the suite makes millions of small objects, few of them in circles


@pytest.fixture(autouse=True)
def own_strategies_go():
    """A strategy that a test registers, as a tutorial does, is no strategy of the tests after it."""
    before = {**STRATEGIES}
    yield
    for name in STRATEGIES.keys() - before.keys():
        del STRATEGIES[name]


@pytest.fixture(scope="session", autouse=True)
def one_compiler():
    """Kernels are compiled in the tests' own process: on the other core, other tests run. A second process takes 1.3 s to begin."""
    from minisitch.runtime.cpu import compile as compiler

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "MANY", 1000)
        patch.setattr(compiler, "MOST_HERE", 1000)
        yield


@pytest.fixture
def nothing_built():
    """No kernel of another test is used again, and none of this one, which changes the compiler."""
    from minisitch.runtime import steps
    from minisitch.runtime.cpu import compile as compiler

    steps.forget_launches()
    compiler.forget_code()
    yield
    steps.forget_launches()
    compiler.forget_code()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
