"""Settings for all tests: property tests draw the same examples every time, so that a run can be repeated.

``HYPOTHESIS_PROFILE=search`` draws new ones, to look for faults. Compiled kernels go to a folder of the run's own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from hypothesis import settings

# Switches are read when gpujit is imported, and processes that tests start must see it too. Where several processes
# share the tests, one folder serves them all.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["GPUJIT_CACHE_DIR"] = tempfile.mkdtemp(prefix="gpujit-tests-")
    atexit.register(shutil.rmtree, os.environ["GPUJIT_CACHE_DIR"], ignore_errors=True)

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """How long tests of a device may take."""
    parser.addoption("--gpu-seconds", type=float, default=None, help="skip tests of a GPU after so many seconds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that PyTorch judges are skipped where it is not installed, whatever they import themselves."""
    if find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("torch") is not None:
                item.add_marker(pytest.mark.skip(reason="PyTorch is not installed"))


@pytest.fixture(autouse=True)
def _operators_as_before() -> Iterator[None]:
    """Operators that a test declares go with it, however it ends: the next test finds the table it knows."""
    user = sys.modules.get("gpujit.ops.user")
    before = set(user._USER) if user else set()
    yield
    user = sys.modules.get("gpujit.ops.user")
    if user is None or set(user._USER) == before:
        return
    from gpujit.ops import registry

    kept = [op for op in registry.registered() if op.full_name in before or op.full_name not in user._USER]
    while new := set(user._USER) - before:
        user.remove_op(new.pop())
    assert list(registry.registered()) == kept
