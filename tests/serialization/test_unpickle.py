"""The pickle reader: every opcode, the allow-list, identity, and pickles that are damaged or hostile."""

from __future__ import annotations

import collections
import pickle
import time

import pytest

from gpujit.ir.types import INT, EnumType
from gpujit.ir.values import Device, EnumValue
from gpujit.serialization.tensors import torch_globals
from gpujit.serialization.unpickle import MAX_DEPTH, Malformed, Opaque, Unpickler
from gpujit.support.errors import ArchiveError, InternalError, PickleError
from tests.serialization.archives import integer, name, pickled, text, tuple_of

COLOR = EnumType("__torch__.Color", INT, {"RED": 1})


class Thing:
    def __init__(self, kind):
        self.kind = kind
        self.state = None


class Handler:
    def __init__(self, kind):
        self.kind = kind

    def new(self):
        return Thing(self.kind)

    def build(self, obj, state):
        obj.state = state

    def reduce(self, arg):
        if self.kind != "Color" or arg != 1:
            raise Malformed("no such member")
        return EnumValue(COLOR, "RED", arg)


def no_storage(pid):
    raise Malformed("no storages here")


def load(data, *, persistent=no_storage, on_tag=None, opaque=False):
    return Unpickler(
        data,
        globals=torch_globals(on_tag),
        persistent=persistent,
        where="file m.pt, member m/data.pkl",
        find_class=lambda module, name: None if name == "Unknown" else Handler(name),
        opaque=opaque,
    ).load()


def refused(data, code, *words, **options):
    """The message with which the pickle is refused; checks that it names the place."""
    with pytest.raises(PickleError) as caught:
        load(data, **options)
    assert caught.value.code == code, str(caught.value)
    message = str(caught.value)
    assert "in file m.pt, member m/data.pkl" in message and "at byte " in message
    for word in words:
        assert word in message, message
    return message


# Values -------------------------------------------------------------------------------------------------------------

VALUES = [
    None, True, False, 0, 255, 256, 65535, 65536, -1, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63), 0.0, -1.5,
    float("inf"), "", "a", "ä€😀", "x" * 300, b"", b"ab", b"x" * 300, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [],
    [1], [1, "a", None], {}, {"a": 1}, {1: (2, [3, {4: 5}])}, {(1, "a"): 2.5}, list(range(2000)),
    {str(i): i for i in range(2000)},
]  # fmt: skip


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_of_every_protocol(protocol):
    for value in VALUES:
        if protocol == 2 and isinstance(value, bytes):
            continue  # protocol 2 spells bytes as a call of codecs.encode
        found = load(pickle.dumps(value, protocol))
        assert found == value and type(found) is type(value)
    assert load(pickle.dumps(collections.OrderedDict(b=1, a=2), protocol)) == {"b": 1, "a": 2}
    shared = [1]
    found = load(pickle.dumps([shared, shared, {"k": shared}], protocol))
    assert found[0] is found[1] is found[2]["k"]


def test_opcodes_that_picklers_seldom_write():
    assert load(pickled(b"(" + integer(1) + integer(2) + b"l")) == [1, 2]
    assert load(pickled(b"(" + text("a") + integer(2) + b"d")) == {"a": 2}
    assert load(pickled(b"]" + integer(1) + b"a")) == [1]
    assert load(pickled(b"}" + text("a") + integer(1) + b"s")) == {"a": 1}
    assert load(pickled(b"NN0")) is None
    assert load(pickled(b"N(NN1")) is None
    assert load(pickled(b"N(0")) is None


def test_long_memo_indices_keep_identity():
    found = load(pickled(b"]r\0\1\0\0j\0\1\0\0\x86"))
    assert found == ([], []) and found[0] is found[1]


def test_names_that_torchscript_uses():
    def call(module, function, *args):
        return name(module, function) + tuple_of(*args) + b"R"

    def a_list(*items):
        return b"](" + b"".join(items) + b"e"

    tags = []

    def tag(value, text):
        tags.append((value, text))

    jit = "torch.jit._pickle"
    one_half = b"G" + b"\x3f\xe0\0\0\0\0\0\0"
    assert load(pickled(call("torch", "device", text("cuda:1")))) == Device("cuda", 1)
    assert load(pickled(call("torch", "device", text("cuda"), integer(1)))) == Device("cuda", 1)
    assert load(pickled(call("builtins", "complex", one_half, one_half))) == 0.5 + 0.5j
    assert load(pickled(call("torch", "Size", tuple_of(integer(2))))) == (2,)
    assert load(pickled(call(jit, "build_intlist", a_list(integer(1)))), on_tag=tag) == [1]
    assert load(pickled(call(jit, "build_doublelist", a_list(one_half))), on_tag=tag) == [0.5]
    assert load(pickled(call(jit, "build_boollist", a_list(b"\x88"))), on_tag=tag) == [True]
    assert load(pickled(call(jit, "build_tensorlist", a_list())), on_tag=tag) == []
    tagged = load(pickled(call(jit, "restore_type_tag", a_list(text("a")), text("List[str]"))), on_tag=tag)
    assert [t for _, t in tags] == ["List[int]", "List[float]", "List[bool]", "List[Tensor]", "List[str]"]
    assert tags[-1][0] is tagged == ["a"]
    assert load(pickled(name("torch", "per_tensor_affine"))).name == "per_tensor_affine"

    refused(pickled(call(jit, "build_intlist", a_list(b"\x88"))), "pickle-arguments", "List[int]")
    refused(pickled(call(jit, "build_intlist", integer(1))), "pickle-arguments")
    refused(pickled(call(jit, "build_tensorlist", a_list(b"N"))), "pickle-arguments")
    refused(pickled(call(jit, "restore_type_tag", integer(1), text("int"))), "pickle-arguments")
    refused(pickled(call(jit, "build_tensor_from_id", integer(1))), "pickle-arguments", "beside it")
    refused(pickled(call("torch", "device", text("toaster"))), "pickle-arguments", "toaster")
    refused(pickled(call("builtins", "complex", text("1"), text("2"))), "pickle-arguments")
    refused(pickled(name(jit, "build_intlist") + b"]R"), "pickle-arguments", "not a tuple")


def test_objects_and_enums_come_from_find_class():
    body = name("__torch__.a.b", "M") + b"q\0)\x81}(" + text("x") + integer(1) + b"ubq\1"
    found = load(pickled(body + b"h\1\x86"))
    assert found[0] is found[1] and found[0].kind == "M" and found[0].state == {"x": 1}
    red = load(pickled(name("__torch__", "Color") + integer(1) + b"R"))
    assert red == EnumValue(COLOR, "RED", 1)
    assert load(pickled(b"}" + name("__torch__", "Color") + integer(1) + b"R" + b"Ns")) == {red: None}
    refused(pickled(name("__torch__", "Color") + integer(7) + b"R"), "pickle-arguments", "no such member")
    refused(pickled(name("__torch__", "Unknown")), "pickle-global", "__torch__.Unknown")
    refused(pickled(name("__torch__", "M") + b")\x81"), "pickle-stack", "never given its attributes")
    refused(pickled(name("__torch__", "M") + b")\x81}b}b"), "pickle-arguments", "only new objects")
    refused(pickled(name("__torch__", "M") + b"N\x81"), "pickle-arguments")
    refused(pickled(b"N}b"), "pickle-arguments")
    refused(pickled(b"N)R"), "pickle-arguments", "called like a function")


def test_a_state_of_an_ordered_dict_is_passed_over():
    body = name("collections", "OrderedDict") + b")R}" + text("_metadata") + b"Nsb"
    assert load(pickled(body)) == {}


# The allow-list -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("os", "system"), ("builtins", "eval"), ("__builtin__", "eval"), ("torch", "load"), ("torch.jit._pickle", "os"),
        ("collections", "defaultdict"), ("__torch", "M"), ("torch._utils", "_rebuild_tensor_v2.__globals__"),
        ("posix", "system\x1b[31m"),
    ],
)  # fmt: skip
def test_other_names_are_refused_and_named(module, attribute):
    body = text("pad") + b"0" + name(module, attribute) + text("echo") + b"\x85R"
    message = refused(pickled(body), "pickle-global", "nothing was run", "at byte 11")
    assert f"{module}.{attribute}".replace("\x1b", "\\x1b") in message and "\x1b" not in message
    refused(b"\x80\x04" + text(module) + text(attribute) + b"\x93.", "pickle-global")


def test_opaque_reading_makes_nothing():
    found = load(pickle.dumps({"a": collections.Counter("x"), "b": pickle.PickleBuffer}, 2), opaque=True)
    assert found["a"] == Opaque("collections.Counter") and isinstance(found["b"], Opaque)


# Damage and malice --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "pickle-truncated"),
        (b"\x80\x02", "pickle-truncated"),
        (b"\x80\x02N", "pickle-truncated"),
        (b"\x80\x06N.", "pickle-opcode"),
        (pickled(b"\xff"), "pickle-opcode"),
        (pickled(b"X\xff\xff\xff\xffabc"), "pickle-truncated"),
        (pickled(b"\x8d" + b"\xff" * 8), "pickle-truncated"),
        (pickled(b"B\xff\xff\xff\x7f"), "pickle-truncated"),
        (b"\x80\x04\x95" + b"\xff" * 8 + b"N.", "pickle-truncated"),
        (b"\x80\x02X\1\0", "pickle-truncated"),
        (b"\x80\x02X\1\0\0\0a", "pickle-truncated"),
        (b"\x80\x02X\1\0\0\0ar\0", "pickle-truncated"),
        (b"\x80\x02cos\nsystem", "pickle-truncated"),
        (pickled(b"c" + b"x" * 5000 + b"\nsystem\n"), "pickle-truncated"),
        (pickled(b"X\1\0\0\0\xff"), "pickle-text"),
        (pickled(b"c\xff\nx\n"), "pickle-text"),
        (pickled(b"\x8b\xff\xff\xff\x7f"), "pickle-number"),
        (pickled(b"\x8a\x20" + b"\1" * 32), "pickle-number"),
        (b"\x80\x02\x8a\x09\1.", "pickle-truncated"),
        (pickled(b""), "pickle-stack"),
        (pickled(b"NN"), "pickle-stack"),
        (pickled(b"(N"), "pickle-stack"),
        (pickled(b"t"), "pickle-stack"),
        (pickled(b"q\0"), "pickle-stack"),
        (pickled(b"(q\0"), "pickle-stack"),
        (pickled(b"\x87"), "pickle-stack"),
        (pickled(b"N\x86"), "pickle-stack"),
        (pickled(b"R"), "pickle-stack"),
        (pickled(b"Q"), "pickle-stack"),
        (pickled(b"}(Nu"), "pickle-stack"),
        (pickled(b"0"), "pickle-stack"),
        (pickled(b"h\0"), "pickle-memo"),
        (pickled(b"j\xff\xff\xff\xff"), "pickle-memo"),
        (pickled(b"}]Ns"), "pickle-key"),
        (pickled(b"}](NNu" + b"N"), "pickle-arguments"),
        (pickled(b"})}\x86Ns"), "pickle-key"),
        (pickled(b"NNa"), "pickle-arguments"),
        (pickled(b")NNs"), "pickle-arguments"),
        (pickled(b"N(NNu"), "pickle-arguments"),
        (pickled(b"NQ"), "pickle-arguments"),
        (b"\x80\x04NN\x93.", "pickle-global"),
    ],
)
def test_damaged_pickles(data, code):
    refused(data, code)


def test_depth_is_bounded_and_reading_does_not_recurse():
    refused(pickled(b"(" * 100_000), "pickle-depth", str(MAX_DEPTH))
    refused(pickled(b")" + b"\x85" * 100_000), "pickle-depth")
    refused(pickled(b"]q\x000" + b"]h\0aq\x000" * 5000 + b"h\0"), "pickle-depth")
    # Built from the inside out through the memo, in an order that a walk from the root meets shallow first.
    tower = b"]q\x000" + b"](h\0h\0eq\x000" * (MAX_DEPTH + 10) + b"h\0"
    refused(pickled(tower), "pickle-depth")
    objects = b"Nq\x000" + (name("__torch__", "M") + b")\x81}" + text("n") + b"h\0sbq\x000") * 600 + b"h\0"
    refused(pickled(objects), "pickle-depth")
    load(pickled(b")" + b"\x85" * (MAX_DEPTH - 10)))
    # Hashing a deep tuple would overflow the C stack.
    refused(pickled(b"})" + b"\x85" * 100_000 + b"Ns"), "pickle-key")


def test_cycles_are_refused():
    refused(pickled(b"]q\0h\0a"), "pickle-cycle")
    refused(pickled(b"}q\0" + text("a") + b"h\0s"), "pickle-cycle")
    refused(pickled(name("__torch__", "M") + b")\x81q\0}" + text("n") + b"h\0sb"), "pickle-cycle")


def test_shared_parts_cost_no_more_than_their_bytes():
    laughs = b"]q\x000" + b"](h\0h\0h\0h\0h\0h\0h\0h\0eq\x000" * 900 + b"h\0"
    start = time.perf_counter()
    found = load(pickled(laughs))
    assert len(found) == 8 and found[0] is found[7]
    assert time.perf_counter() - start < 2


def test_a_container_cannot_change_after_its_type_was_checked():
    checked = name("torch.jit._pickle", "build_intlist") + b"]q\0\x85R"
    refused(pickled(checked + text("a") + b"a"), "pickle-arguments", "after its type was checked")
    refused(pickled(checked + b"h\0" + text("a") + b"a0"), "pickle-arguments", "after its type was checked")
    tagged = name("torch.jit._pickle", "restore_type_tag") + b"}" + text("Dict[str, int]") + b"\x86R"
    refused(pickled(tagged + text("a") + b"Ns"), "pickle-arguments", "after its type was checked")


def test_errors_of_handlers_are_told_apart():
    def persistent(pid):
        if pid is None:
            raise ArchiveError("elsewhere", code="missing-member")
        raise IndexError("a fault of ours")

    with pytest.raises(ArchiveError, match="elsewhere"):
        load(pickled(b"NQ"), persistent=persistent)
    with pytest.raises(InternalError, match="a fault of ours"):
        load(pickled(b"\x88Q"), persistent=persistent)


def test_speed_of_a_large_pickle():
    data = pickle.dumps({str(i): (i, i + 1, [i]) for i in range(6000)}, 2)
    best = 1.0
    for _ in range(3):
        start = time.perf_counter()
        load(data)
        best = min(best, time.perf_counter() - start)
    assert best < 0.5, best  # 20 ms on a quiet machine
