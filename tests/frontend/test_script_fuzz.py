"""Damaged programs: each ends in a graph that verifies, or in an error of gpujit's own."""

from __future__ import annotations

import random
import re

import pytest

import gpujit
from gpujit.ir.verify import verify
from tests.frontend import language

TEXTS = [s.text for s in language.all_snippets() if not re.search(r"class |import|@", s.text)]
TOKENS = [t for text in TEXTS for t in re.findall(r"\w+|[^\w\s]", text)]


def damaged(rng: random.Random) -> str:
    """A snippet with up to three tokens replaced, left out or added."""
    parts = re.findall(r"\w+|\s+|[^\w\s]", rng.choice(TEXTS))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, way = rng.randrange(len(parts)), rng.random()
        if way < 0.6:
            parts[at] = rng.choice(TOKENS)
        elif way < 0.8 and len(parts) > 1:
            del parts[at]
        else:
            parts.insert(at, rng.choice(TOKENS))
    return "".join(parts)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_programs(seed: int) -> None:
    rng = random.Random(seed)
    compiled = 0
    for _ in range(150):
        try:
            unit = gpujit.CompilationUnit(damaged(rng))
        except gpujit.GpujitError as e:
            assert str(e)
            continue
        compiled += 1
        for function in unit.get_functions():
            verify(function.graph)
    assert compiled
