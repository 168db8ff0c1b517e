"""torch.package archives: the TorchScript modules in them, what they are called, and what is never made."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

import gpujit
from gpujit.serialization.archive import Archive
from gpujit.serialization.package import module_keys
from tests.serialization.archives import (
    Entry,
    name,
    pickled,
    script_archive,
    storage,
    tensor,
    text,
    tuple_of,
    write_zip,
)

CODE = b"""class Scale(Module):
  __parameters__ = ["weight", ]
  __buffers__ = []
  weight : Tensor
  training : bool
  def forward(self: __torch__.Scale,
    x: Tensor) -> Tensor:
    weight = self.weight
    return torch.mul(x, weight)
class Shift(Module):
  __parameters__ = []
  __buffers__ = []
  weight : Tensor
  training : bool
  def forward(self: __torch__.Shift,
    x: Tensor) -> Tensor:
    _0 = torch.add(x, CONSTANTS.c1)
    return torch.sub(_0, self.weight)
"""
SHARED = tensor(storage("7.storage", numel=2), [2], [1])
UNPACK = name("torch.jit._script", "unpackage_script_module")


def module(cls: str, weight: bytes = SHARED) -> bytes:
    """A module's pickle."""
    return pickled(name("__torch__", cls) + b")\x81}(" + text("weight") + weight + text("training") + b"\x89ub")


def reference(number: str) -> bytes:
    """What a package's pickle holds in place of a scripted module."""
    return tuple_of(text("reduce_package"), b"K\x05", UNPACK, tuple_of(text(number))) + b"Q"


def constants(count: int) -> bytes:
    """A tuple of tensors, each of one number."""
    return pickled(tuple_of(*(tensor(storage(f"{i}.storage", numel=1), [], []) for i in range(count))))


def package(
    *members: Entry, modules: tuple[str, ...] = ("Scale", "Shift"), weight: bytes = SHARED, second: bytes | None = None
) -> bytes:
    """An archive with a module of each of these classes; their weights are one storage."""
    storages = [Entry(f"p/.data/{i}.storage", np.float32(10 * (i + 1)).tobytes()) for i in range(2)]
    entries = [*storages, Entry("p/.data/7.storage", np.array([2, 3], np.float32).tobytes())]
    for i, cls in enumerate(modules):
        # Each module's constants are those of the modules before it and its own.
        root = module(cls, weight) if i == 0 or second is None else second
        entries.append(Entry(f"p/.data/ts_code/{i}/data.pkl", root))
        entries.append(Entry(f"p/.data/ts_code/{i}/constants.pkl", constants(i + 1)))
    return write_zip(
        [
            *entries,
            *members,
            Entry("p/models/net.py", b"raise SystemExit('the package was run')\n"),
            Entry("p/.data/ts_code/code/__torch__.py", CODE),
            Entry("p/.data/extern_modules", b"torch\n"),
            Entry("p/.data/version", b"6\n"),
        ]
    )


def keys(*members: Entry) -> list[int | str]:
    """Names of the two modules when the package has these members as well."""
    with Archive(package(*members)) as archive:
        return list(module_keys(archive).values())


def test_every_module_loads_and_runs() -> None:
    scale, shift = gpujit.load_package(package()).values()
    x = np.array([1, 1], np.float32)
    np.testing.assert_array_equal(scale(x), [2, 3])
    np.testing.assert_array_equal(shift(x), [19, 18])
    assert scale.original_name == "Scale" and [n for n, _ in scale.named_parameters()] == ["weight"]


def test_modules_share_storages() -> None:
    scale, shift = gpujit.load_package(package()).values()
    scale.weight[0] = 5
    np.testing.assert_array_equal(shift.weight, [5, 3])


def test_load_gives_the_only_module_and_lists_several() -> None:
    single = gpujit.load(package(modules=("Scale",)))
    np.testing.assert_array_equal(single(np.ones(2, np.float32)), [2, 3])
    member = Entry("p/models/net", pickled(reference("1")))
    with pytest.raises(gpujit.LoadError, match=r"2 TorchScript modules.*gpujit\.load_package.*\(0, .models/net.\)"):
        gpujit.load(package(member))


def test_a_plain_archive_is_no_package() -> None:
    with pytest.raises(gpujit.LoadError, match=r"open it with gpujit\.load"):
        gpujit.load_package(script_archive())


def test_errors_name_the_members_of_the_package() -> None:
    shift = gpujit.load_package(package())[1]
    with pytest.raises(gpujit.OpError, match=r'File "\.data/ts_code/code/__torch__\.py", line 18, in forward'):
        shift(np.ones(3, np.float32))
    missing = tensor(storage("9.storage", numel=2), [2], [1])
    with pytest.raises(gpujit.LoadError, match=r"no member .*\.data/9\.storage"):
        gpujit.load_package(package(weight=missing))
    with pytest.raises(gpujit.LoadError, match=r"\.data/ts_code/1/data\.pkl holds a"):
        gpujit.load_package(package(second=pickled(text("nothing"))))


# What modules are called ---------------------------------------------------------------------------------------------


def test_names_come_from_the_pickles_beside_the_modules() -> None:
    both = b"}(" + text("first") + reference("1") + text("rest") + b"](" + reference("0") + b"eu"
    assert keys(Entry("p/models/net", pickled(both))) == ["models/net.rest.0", "models/net.first"]
    assert keys(Entry("p/a", pickled(reference("0"))), Entry("p/b", pickled(reference("1")))) == ["a", "b"]


def test_names_lead_through_objects_of_classes_that_are_never_made() -> None:
    inner = name("os", "System") + b")\x81}(" + text("model") + reference("0") + text("n") + b"K\x01ub"
    called = name("collections", "OrderedDict") + b")R(" + text("encoder") + reference("1") + b"u"
    layers = name("models.net", "Net") + b")\x81}(" + text("_modules") + called + b"ub"
    outer = b"}(" + text("accentor") + inner + text("net") + layers + b"u"
    assert keys(Entry("p/models/pair", pickled(outer))) == ["models/pair.accentor.model", "models/pair.net.encoder"]


class Holder:
    """An ordinary class of the package."""


@pytest.mark.parametrize("protocol", [2, 3])
def test_what_pythons_own_pickler_writes_is_read_as_an_outline(protocol: int) -> None:
    holder = Holder()
    holder.__dict__ = {
        "table": {"a": (1, 2.5, None), ("odd", "key"): ["x" * 300, True, {1, 2}], 3: frozenset("ab")},
        "itself": holder,
        "path": Path("p"),
        "empty": Holder(),
        "number": 1 << 60,
    }
    body = pickle.dumps(holder, protocol)[2:-1]
    assert keys(Entry("p/m", b"\x80\x03(" + body + reference("1") + b"t.")) == [0, "m.1"]


def test_the_shortest_way_names_a_module_and_a_name_goes_to_one() -> None:
    deep = b"}(" + text("a") + b"}(" + text("b") + reference("0") + b"u" + text("c") + reference("0") + b"u"
    assert keys(Entry("p/m", pickled(deep))) == ["m.c", 1]
    twice = b"}(" + text("a.b") + reference("0") + text("a") + b"}(" + text("b") + reference("1") + b"uu"
    assert keys(Entry("p/m", pickled(twice))) == ["m.a.b", 1]


@pytest.mark.parametrize(
    "data",
    [
        pickled(reference("0"))[:-5],
        pickled(b"c__builtin__\neval\n" + tuple_of(text("1/0")) + b"R"),
        pickled(tuple_of(text("reduce_package"), b"K\x05", name("os", "system"), tuple_of(text("0"))) + b"Q"),
        pickled(reference("zero")),
        pickled(reference("12345678")),
        pickled(b"](" + b"](" * 2000),
        b"\x80\x05\xff",
        b"no pickle at all",
        b"",
    ],
)
def test_pickles_that_say_nothing_leave_the_numbers(data: bytes) -> None:
    assert keys(Entry("p/models/net", data)) == [0, 1]
    assert list(gpujit.load_package(package(Entry("p/models/net", data)))) == [0, 1]


def test_cycles_and_long_chains_end() -> None:
    chain = b"]" + b"q\x00" + b"]h\x00aq\x00" * 50_000
    cycle = b"]q\x00h\x00a" + reference("1") + b"a"
    assert keys(Entry("p/chain", pickled(chain)), Entry("p/cycle", pickled(cycle))) == [0, "cycle.1"]


MODELS = Path(os.environ.get("GPUJIT_TEST_MODELS", "."))


@pytest.mark.skipif(not (MODELS / "accentor.pt").exists(), reason="ci/fetch_models.sh gets the models")
@pytest.mark.parametrize(
    ("file", "paths"),
    [("accentor.pt", ["accentor", "homosolver"]), ("accentor-ukr.pt", ["accentor"]), ("accentor-bel.pt", ["accentor"])],
)
def test_a_shipped_package(file: str, paths: list[str]) -> None:
    found = gpujit.load_package(MODELS / file)
    assert list(found) == [f"accentor_models/accentor.{p}.model" for p in paths]
