"""Chains whose every link reads the one before in two places: joined all together they would double with each link."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from gpujit.fuser.lower import PLACES
from gpujit.kernels.index import dim, div, index, mod
from tests.fuser.help import array, fuse_free, read, run

LENGTH = 14
NUMBERS = "".join(f"  %i{k} : int = prim::Constant[value={k}]()\n" for k in range(17))


def halves(k: int) -> str:
    """Sum and difference of both halves: a step of a butterfly."""
    return f"""  %l{k} = aten::slice(%x{k}, %i0, %i0, %i8, %i1)
  %r{k} = aten::slice(%x{k}, %i0, %i8, %i16, %i1)
  %a{k} = aten::add(%l{k}, %r{k}, %i1)
  %b{k} = aten::sub(%l{k}, %r{k}, %i1)
  %c{k} : Tensor[] = prim::ListConstruct(%a{k}, %b{k})
  %y{k} = aten::cat(%c{k}, %i0)
  %x{k + 1} = aten::tanh(%y{k})
"""


def written(k: int) -> str:
    """An element that follows from another one is put in its place, as writing in a loop does."""
    return f"""  %s{k} = aten::select(%x{k}, %i0, %i{k + 1})
  %t{k} = aten::exp(%s{k})
  %y{k} = aten::select_scatter(%x{k}, %t{k}, %i0, %i{k})
  %x{k + 1} = aten::tanh(%y{k})
"""


def rolled(k: int) -> str:
    """Elements that go round the end, with others."""
    return f"""  %o{k} : int[] = prim::ListConstruct(%i{k % 5 + 1})
  %d{k} : int[] = prim::ListConstruct(%i0)
  %r{k} = aten::roll(%x{k}, %o{k}, %d{k})
  %y{k} = aten::mul(%x{k}, %r{k})
  %x{k + 1} = aten::tanh(%y{k})
"""


def turned(k: int) -> str:
    """Elements in another order, which only divisions find, with others."""
    return f"""  %o{k} : int[] = prim::ListConstruct(%i2, %i4, %i2)
  %d{k} : int[] = prim::ListConstruct(%i16)
  %p{k} = aten::reshape(%x{k}, %o{k})
  %q{k} = aten::transpose(%p{k}, %i0, %i1)
  %r{k} = aten::reshape(%q{k}, %d{k})
  %y{k} = aten::mul(%x{k}, %r{k})
  %x{k + 1} = aten::tanh(%y{k})
"""


@pytest.mark.parametrize("link", [halves, written, rolled, turned])
def test_no_program_doubles_with_each_link(link: Callable[[int], str]) -> None:
    body = "".join(map(link, range(LENGTH)))
    graph = read(f"graph(%x : Float(16)):\n{NUMBERS}  %x0 = aten::neg(%x)\n{body}  return (%x{LENGTH})")
    inputs = [array(16)]
    want = run(graph, None, inputs)
    found = fuse_free(graph)
    # Something is joined, and nothing to more than it can be computed in.
    assert 0 < len(found.programs) < LENGTH * 3
    for node, lowered in found.programs.items():
        count = len(list(node.attributes["Subgraph"].nodes))
        assert len(lowered.program.body) < PLACES * count * 8
    np.testing.assert_allclose(run(graph, found, inputs), want, rtol=1e-5, atol=1e-6)


def test_an_index_is_the_same_in_another_process() -> None:
    at = div(dim(0) * 6 + mod(dim(1), index(5)), index(4))
    assert hash(at) and str(at)  # kept with it, and not to be handed on
    sent = pickle.dumps(at)
    code = "import pickle, sys; x = pickle.loads(sys.stdin.buffer.read()); print(hash(x) == hash(type(x)(x.terms)))"
    told = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True, check=True)
    assert told.stdout.strip() == b"True" and pickle.loads(sent) == at
