"""Device literals moved: everything to one device, some by a table, nothing that is no device."""

from __future__ import annotations

import textwrap
from functools import partial

import pytest

from gpujit.ir.parser import parse_graph
from gpujit.ir.printer import print_graph
from gpujit.ir.values import Device
from gpujit.passes.device import device_map, remap_devices
from gpujit.support.errors import DeviceError
from gpujit.testing import check_pass

BEFORE = """
    graph(%x : Float(2, device=cuda:0)):
      %d : Device = prim::Constant[value="cuda:0"]()
      %s : str = prim::Constant[value="cuda:0"]()
      %f : bool = prim::Constant[value=1]()
      %y : Tensor = prim::If(%f)
        block0():
          %e : Device = prim::Constant[value="cuda:1"]()
          -> (%x)
        block1():
          -> (%x)
      %m : Device = prim::Constant[value="meta"]()
      return (%d, %s, %y)"""


def test_everything_goes_to_one_device_but_meta_and_text() -> None:
    after = BEFORE.replace('Device = prim::Constant[value="cuda:0"]', 'Device = prim::Constant[value="cpu"]')
    after = after.replace('"cuda:1"', '"cpu"').replace("device=cuda:0", "device=cpu")
    check_pass(partial(remap_devices, target="cpu"), before=BEFORE, after=after)


def test_a_table_moves_what_it_names() -> None:
    after = BEFORE.replace('"cuda:1"', '"cuda:0"')
    check_pass(partial(remap_devices, target={"cuda:1": "cuda:0"}), before=BEFORE, after=after)


def test_nothing_to_do() -> None:
    check_pass(partial(remap_devices, target={"xla": "cpu"}), before=BEFORE, after=BEFORE)


def test_devices_in_lists_and_tuples_and_subgraphs_move() -> None:
    text = """
        graph(%x : Tensor):
          %l : (Device, int) = prim::Constant[value=(Device("cuda:0"), 1)]()
          %f : Future(Device) = prim::fork_0(%x)
          return (%l, %f)
        with prim::fork_0 = graph(%x : Tensor):
          %d : Device = prim::Constant[value="cuda:0"]()
          return (%d)"""
    graph = parse_graph(textwrap.dedent(text).strip())
    assert remap_devices(graph, "cpu") is True
    assert "cuda" not in print_graph(graph)
    assert remap_devices(graph, "cpu") is False


def test_a_function_decides() -> None:
    to = device_map(lambda d: Device("cpu") if d.index == 1 else d)
    assert to(Device("cuda", 1)) == Device("cpu") and to(Device("cuda", 0)) == Device("cuda", 0)


@pytest.mark.parametrize("target", ["sideways", {"cuda:0": "sideways"}, {"sideways": "cpu"}])
def test_text_that_names_no_device_is_refused(target: object) -> None:
    with pytest.raises(DeviceError, match="'sideways' is no device"):
        device_map(target)  # type: ignore[arg-type]
