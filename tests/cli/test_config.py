"""``gpujit config`` in both forms."""

from __future__ import annotations

import json

import pytest

from gpujit.cli.main import main
from gpujit.support.config import config


def test_every_switch_is_shown_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    with config(check_types=True):
        assert main(["config"]) == 0
    assert capsys.readouterr().out.startswith("GPUJIT_CHECK_TYPES=1  compare what every operator returns")


def test_json_has_a_row_for_each_switch(capsys: pytest.CaptureFixture[str]) -> None:
    with config(check_types=False):
        assert main(["config", "--json"]) == 0
    rows = {r["name"]: (r["variable"], r["value"]) for r in json.loads(capsys.readouterr().out)}
    assert rows["check_types"] == ("GPUJIT_CHECK_TYPES", False)
    assert rows["pass_limit"] == ("GPUJIT_PASS_LIMIT", None)
    assert all(r["help"] for r in config.switches())
