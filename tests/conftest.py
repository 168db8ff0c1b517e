"""Settings for all tests: property tests draw the same examples every time, so that a run can be repeated.

``HYPOTHESIS_PROFILE=search`` draws new ones, to look for faults. Compiled kernels go to a folder of the run's own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
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
