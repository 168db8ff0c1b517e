"""Settings for all tests: property tests draw the same examples every time, so that a run can be repeated.

``HYPOTHESIS_PROFILE=search`` draws new ones, to look for faults.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.register_profile("search", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
