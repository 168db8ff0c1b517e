"""Switches from the environment."""

from __future__ import annotations

import pytest

from gpujit.support.config import config, from_environment
from gpujit.support.errors import ArgumentError


def test_each_switch_reads_its_variable() -> None:
    settings = from_environment(
        {"GPUJIT_VERIFY": "yes", "GPUJIT_PRINT_AFTER": "dce, cse", "GPUJIT_PASS_LIMIT": "12", "GPUJIT_DUMP_DIR": "d"}
    )
    assert (settings.verify, settings.print_after, settings.pass_limit) == (True, ("dce", "cse"), 12)
    assert settings.dump_dir == "d"
    assert not settings.check_types


def test_a_value_that_is_none_names_the_variable() -> None:
    with pytest.raises(ArgumentError, match="GPUJIT_PASS_LIMIT='many'"):
        from_environment({"GPUJIT_PASS_LIMIT": "many"})


def test_values_hold_inside_the_block_alone() -> None:
    before = config.pass_limit
    with config(pass_limit=3):
        assert config.pass_limit == 3
        assert "GPUJIT_PASS_LIMIT=3  " in config.describe()
    assert config.pass_limit == before
