"""Device literals in a graph replaced, so that a model made for one device runs on another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.graph import Graph, Value
from gpujit.ir.printer import SUBGRAPH
from gpujit.ir.values import Device, parse_device

DeviceMap = Callable[[Device], Device]


def device_map(target: str | Device | Mapping[Any, Any] | DeviceMap) -> DeviceMap:
    """A function from device to device: everything to ``target``, or as a mapping (by text, others stay) says.

    The device ``meta`` holds no data and stays when everything goes to one device. Raises DeviceError for text that
    names no device.
    """
    if isinstance(target, (str, Device)):
        one = parse_device(target) if isinstance(target, str) else target
        return lambda device: device if device.type == "meta" else one
    if isinstance(target, Mapping):
        table = {parse_device(str(a)): parse_device(str(b)) for a, b in target.items()}
        return lambda device: table.get(device, device)
    return target


def remap_devices(graph: Graph, target: str | Device | Mapping[Any, Any] | DeviceMap) -> bool:
    """Replace the devices in a graph's constants and types, as ``device_map`` says; whether any changed."""
    return _remap(graph, device_map(target))


def _remap(graph: Graph, to: DeviceMap) -> bool:
    changed = False
    for value in values_of(graph):
        t = value.type
        if isinstance(t, T.TensorType) and t.device is not None:
            moved = replace(t, device=str(to(parse_device(t.device))))
            changed |= moved != t
            value.type = moved
    for node in graph.all_nodes():
        subgraph = node.attributes.get(SUBGRAPH)
        if isinstance(subgraph, Graph):
            changed |= _remap(subgraph, to)
        if node.kind == "prim::Constant" and "value" in node.attributes:
            held = node.attributes["value"]
            moved_value = _moved(held, to)
            if moved_value is not held:
                node.attributes["value"] = moved_value
                changed = True
    return changed


def values_of(graph: Graph) -> list[Value]:
    """All values of a graph: parameters of blocks and results of nodes."""
    found = list(graph.inputs)
    for node in graph.all_nodes():
        found += node.outputs
        for block in node.blocks:
            found += block.params
    return found


def _moved(value: Any, to: DeviceMap) -> Any:
    if isinstance(value, Device):
        moved = to(value)
        return value if moved == value else moved
    if type(value) in (list, tuple) and any(isinstance(v, (Device, list, tuple)) for v in value):
        items = [_moved(v, to) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    return value
