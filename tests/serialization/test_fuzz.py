"""Damaged files of every kind: each ends in a value or in one error family, soon and in little memory."""

from __future__ import annotations

import functools
import os
import pickle
import random
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpujit.serialization.archive import Archive
from gpujit.serialization.storage import StorageReader
from gpujit.serialization.tensors import torch_globals, torch_unpickler
from gpujit.serialization.unpickle import Malformed, Unpickler
from gpujit.support.errors import GpujitError, InternalError
from tests.serialization.archives import (
    Entry,
    integer,
    ints,
    name,
    pickled,
    script_entries,
    storage,
    tensor,
    text,
    tuple_of,
    write_zip,
)

# More for a long run: GPUJIT_FUZZ=20000 python -m pytest tests/serialization/test_fuzz.py
EXAMPLES = int(os.environ.get("GPUJIT_FUZZ", "300"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))


class Root:
    """Takes any state."""

    def new(self):
        return []

    def build(self, obj, state):
        obj.append(state)

    def reduce(self, arg):
        raise Malformed("no enum here")


def read_everything(data):
    """Open the archive and read all that is in it, as a loader would."""
    start = time.perf_counter()
    try:
        archive = Archive(data)
        archive.byteorder  # noqa: B018
        for member in archive.names():
            archive.read(member)
        for pickle_name, folder in (("data.pkl", "data"), ("constants.pkl", "constants")):
            reader = StorageReader(archive, folder, "cpu")
            torch_unpickler(reader, pickle_name, find_class=lambda module, name: Root()).load()
    except InternalError:
        raise
    except GpujitError as error:
        assert error.code and error.message and str(error)
    finally:
        assert time.perf_counter() - start < 5


@functools.cache
def model():
    """An archive with one of everything."""
    jit = "torch.jit._pickle"
    attributes = b"".join(
        [
            text("training"), b"\x89",
            text("w"), tensor(storage("0"), (2, 2), (2, 1)), b"q\1",
            text("tied"), b"h\1",
            text("sizes"), name(jit, "build_intlist"), b"](", integer(1), integer(1 << 40), b"e\x85R",
            text("names"), name(jit, "restore_type_tag"), b"}", text("Dict[str, int]"), b"\x86R",
            text("device"), name("torch", "device"), text("cpu"), b"\x85R",
        ]
    )  # fmt: skip
    q = (storage("1", "QInt8"), integer(0), ints((4,)), ints((1,)))
    quantizer = tuple_of(name("torch", "per_tensor_affine"), b"G?\xe0\0\0\0\0\0\0", integer(0))
    attributes += text("q") + name("torch._utils", "_rebuild_qtensor") + tuple_of(*q, quantizer, b"\x89", b"}") + b"R"
    root = name("__torch__", "M") + b")\x81}(" + attributes + b"ub"
    return script_entries(root, {"0": np.arange(4, dtype=np.float32).tobytes(), "1": b"abcd"})


def test_the_model_itself_is_sound():
    archive = Archive(write_zip(model()))
    found = torch_unpickler(StorageReader(archive, "data"), "data.pkl", find_class=lambda m, n: Root()).load()
    assert found[0]["w"] is found[0]["tied"] and found[0]["sizes"] == [1, 1 << 40]


def damage(data, edits, cut):
    out = bytearray(data)
    for at, value in edits:
        out[at % len(out)] = value
    return bytes(out[: len(out) - cut % len(out)] if cut else out)


EDITS = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=6)
CUTS = st.one_of(st.just(0), st.integers(0, 1 << 16))


@QUICK
@given(EDITS, CUTS)
def test_damaged_archives(edits, cut):
    read_everything(damage(write_zip(model()), edits, cut))


@QUICK
@given(EDITS, CUTS)
def test_damaged_directories(edits, cut):
    """Damage in the part that says where everything is."""
    data = write_zip(model(), zip64_end=cut % 2 == 1)
    start = data.index(b"PK\1\2")
    read_everything(data[:start] + damage(data[start:], edits, cut if cut % 3 == 0 else 0))


@QUICK
@given(EDITS, CUTS)
def test_damaged_pickles_with_right_checksums(edits, cut):
    entries = [
        Entry(e.name, damage(e.data, edits, cut) if e.name == "m/data.pkl" else e.data, deflate=e.deflate)
        for e in model()
    ]
    read_everything(write_zip(entries))


OPCODES = [bytes([b]) for b in b"().0123NQRabdelstu}]\x81\x85\x86\x87\x88\x89\x93\x94"] + [
    b"q\0", b"q\1", b"h\0", b"h\1", b"K\2", b"M\0\1", b"J\xff\xff\xff\xff", b"X\1\0\0\0a", b"X\3\0\0\0cpu",
    b"\x8a\1\xff", b"G?\xe0\0\0\0\0\0\0", integer(1 << 40), storage("0"), storage("1", "QInt8"), tuple_of(),
    ints((2, 2)), ints((2, 1)),
    name("__torch__", "M"), name("os", "system"), name("collections", "OrderedDict"), name("builtins", "complex"),
    name("torch", "device"), name("torch", "FloatStorage"), name("torch", "per_channel_affine"), name("torch", "Size"),
    name("torch._utils", "_rebuild_tensor_v2"), name("torch._utils", "_rebuild_qtensor"),
    name("torch._utils", "_rebuild_sparse_tensor"), name("torch._utils", "_rebuild_parameter"),
    name("torch.jit._pickle", "build_intlist"), name("torch.jit._pickle", "build_tensorlist"),
    name("torch.jit._pickle", "restore_type_tag"), tensor(storage("0"), (2, 2), (2, 1)),
]  # fmt: skip


@QUICK
@given(st.lists(st.sampled_from(OPCODES), max_size=40))
def test_pickles_of_random_opcodes(opcodes):
    entries = [
        Entry(e.name, pickled(b"".join(opcodes)) if e.name == "m/data.pkl" else e.data, deflate=e.deflate)
        for e in model()
    ]
    read_everything(write_zip(entries))


@settings(QUICK, max_examples=EXAMPLES // 5)
@given(st.integers(0, 1 << 30))
def test_long_pickles_that_mostly_make_sense(seed):
    """Opcodes that fail are left out as they come, so that the rest runs deep."""
    opcodes = random.Random(seed).choices(OPCODES, k=40)
    good = b""
    for op in opcodes:
        try:
            load(good + op)
        except GpujitError as error:
            assert not isinstance(error, InternalError)
            if error.code != "pickle-truncated":
                continue
        good += op


def load(body):
    return Unpickler(
        b"\x80\x02" + body,
        globals=torch_globals(),
        persistent=lambda pid: pid,
        where="",
        find_class=lambda module, name: Root(),
    ).load()


@QUICK
@given(st.binary(max_size=300))
def test_any_bytes(data):
    read_everything(data)
    read_everything(b"PK\3\4" + data)
    for opaque in (False, True):
        try:
            Unpickler(data, globals=torch_globals(), persistent=lambda pid: pid, where="", opaque=opaque).load()
        except InternalError:
            raise
        except GpujitError:
            pass


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


@QUICK
@given(PLAIN, st.integers(2, 5))
def test_plain_values_come_back(value, protocol):
    assert Unpickler(pickle.dumps(value, protocol), globals={}, persistent=id, where="").load() == value


@pytest.mark.parametrize("end", ["first", "last"])
def test_every_single_cut(end):
    data = write_zip(model())
    for n in range(0, len(data), 7):
        read_everything(data[:n] if end == "last" else data[n:])
