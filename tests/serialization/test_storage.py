"""Tensors over storages: checked bounds, shared memory, every element type, devices."""

from __future__ import annotations

import contextlib
import io
import itertools
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpujit.ir.dtypes import BY_IR_NAME
from gpujit.ir.values import Device, QTensor, SparseTensor
from gpujit.serialization.archive import Archive
from gpujit.serialization.storage import StorageReader, rebuild_tensor
from gpujit.serialization.tensors import torch_unpickler
from gpujit.serialization.unpickle import Malformed
from gpujit.support.errors import ArchiveError, DeviceError, PickleError
from tests.serialization.archives import (
    Entry,
    integer,
    ints,
    name,
    script_archive,
    script_entries,
    storage,
    tensor,
    text,
    tuple_of,
    write_zip,
)

FOUR = np.arange(4, dtype=np.float32)
RAW = FOUR.tobytes()


def load(root, storages, *, entries=None, map_location=None, on_tensor=None, **options):
    data = script_archive(root, storages) if entries is None else write_zip(entries)
    reader = StorageReader(Archive(data, "m.pt"), "data", map_location, **options)
    return torch_unpickler(reader, "data.pkl", on_tensor=on_tensor).load()


def load_one(code, data=RAW, **options):
    return load(code, {"0": data}, **options)


def refused(code, data=RAW, error=ArchiveError, **options):
    with pytest.raises(error) as caught:
        load_one(code, data, **options)
    return caught.value


# Geometry -----------------------------------------------------------------------------------------------------------


def test_sizes_strides_and_offsets():
    two = load_one(tensor(storage("0"), (2, 2), (2, 1)))
    assert two.tolist() == [[0, 1], [2, 3]] and two.dtype == np.float32 and two.flags.writeable
    assert load_one(tensor(storage("0"), (2, 2), (1, 2))).tolist() == [[0, 2], [1, 3]]
    assert load_one(tensor(storage("0"), (2,), (1,), offset=2)).tolist() == [2, 3]
    assert load_one(tensor(storage("0"), (3,), (0,), offset=1)).tolist() == [1, 1, 1]
    scalar = load_one(tensor(storage("0"), (), (), offset=3))
    assert scalar.shape == () and isinstance(scalar, np.ndarray) and scalar == 3
    empty = load_one(tensor(storage("0", numel=0), (0, 3), (3, 1)), b"")
    assert empty.shape == (0, 3) and empty.dtype == np.float32
    assert load(tensor(storage("9", numel=0), (0,), (1,)), {}).shape == (0,)
    assert load_one(tensor(storage("0"), (1,) * 64, (1,) * 64)).ndim == 64


@pytest.mark.parametrize(
    ("size", "stride", "offset", "word"),
    [
        ((5,), (1,), 0, "reaches element 4 (offset 0, size [5], stride [1]), but it has 4 elements"),
        ((2, 2), (3, 1), 0, "element 4"),
        ((), (), 4, "element 4"),
        ((1 << 62, 1 << 62), (0, 0), 0, "64 bits"),
        ((2,), (1 << 62,), 0, "64 bits"),
        ((1 << 70,), (0,), 0, "64 bits"),
        ((0, 1 << 62, 1 << 62), (1, 1, 1), 0, "64 bits"),
        ((-1,), (1,), 0, "negative"),
        ((2,), (-1,), 1, "negative"),
        ((1,), (1,), -1, "negative"),
        ((1,) * 65, (1,) * 65, 0, "65 dimensions"),
    ],
)
def test_tensors_beyond_their_storage(size, stride, offset, word):
    reader = StorageReader(Archive(script_archive(storages={"0": FOUR.tobytes()}), "m.pt"), "data")
    with pytest.raises(ArchiveError) as caught:
        rebuild_tensor(reader.persistent(("storage", BY_IR_NAME["Float"], "0", "cpu", 4)), offset, size, stride)
    message = str(caught.value)
    assert caught.value.code == "storage-bounds" and word in message
    assert "storage '0' (float32)" in message and "file m.pt, member m/data/0" in message


def test_storages_beyond_their_member():
    assert "declared to have 5 elements (20 bytes), but 16 bytes" in str(refused(tensor(storage("0", numel=5), (), ())))
    assert refused(tensor(storage("0", numel=-1), (), ())).code == "storage-bounds"
    assert refused(tensor(storage("0", numel=1 << 62), (), ())).code == "storage-bounds"
    assert refused(tensor(storage("7"), (), ())).code == "missing-member"
    assert refused(tensor(storage("../data.pkl", "Byte", 1), (), ())).code == "missing-member"


class Case(NamedTuple):
    size: list[int]
    stride: list[int]
    offset: int
    numel: int


def cases():
    def of_rank(rank):
        numbers = st.lists(st.integers(0, 4), min_size=rank, max_size=rank)
        return st.builds(Case, numbers, numbers, st.integers(0, 12), st.integers(0, 24))

    return st.integers(0, 4).flatmap(of_rank)


MEMBER = Archive(script_archive(storages={"0": np.arange(24, dtype=np.int16).tobytes()}))


@settings(max_examples=300, deadline=None)
@given(cases())
def test_bounds_agree_with_counting_every_element(case):
    """Oracle: list the position of every element; all must lie in the storage."""
    places = [
        case.offset + sum(i * s for i, s in zip(index, case.stride, strict=True))
        for index in itertools.product(*map(range, case.size))
    ]
    reader = StorageReader(MEMBER, "data")
    short = reader.persistent(("storage", BY_IR_NAME["Short"], "0", "cpu", case.numel))
    try:
        found = rebuild_tensor(short, case.offset, tuple(case.size), tuple(case.stride))
    except ArchiveError as error:
        assert error.code == "storage-bounds"
        assert any(p >= case.numel for p in places)
    else:
        assert found.shape == tuple(case.size) and found.ravel().tolist() == places
        assert all(p < case.numel for p in places)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-(1 << 65), 1 << 65), max_size=3),
    st.lists(st.integers(-(1 << 65), 1 << 65), max_size=3),
    st.integers(-(1 << 65), 1 << 65),
)
def test_any_numbers_end_in_a_view_or_a_typed_error(size, stride, offset):
    short = StorageReader(MEMBER, "data").persistent(("storage", BY_IR_NAME["Short"], "0", "cpu", 24))
    with contextlib.suppress(ArchiveError, Malformed):
        assert rebuild_tensor(short, offset, tuple(size), tuple(stride)).shape == tuple(size)


# Memory -------------------------------------------------------------------------------------------------------------


def test_tensors_of_one_storage_share_memory_and_identity(tmp_path):
    path = tmp_path / "m.pt"
    view = tensor(storage("0"), (2,), (1,), offset=1)
    root = tuple_of(tensor(storage("0"), (4,), (1,)) + b"q\1", view, b"h\1", tensor(storage("0", numel=2), (2,), (1,)))
    path.write_bytes(script_archive(root, {"0": FOUR.tobytes()}))
    whole, part, again, short = torch_unpickler(StorageReader(Archive(path), "data"), "data.pkl").load()
    assert again is whole
    whole[1] = 9
    assert part[0] == 9 and short[1] == 9
    assert Archive(path).read("data/0") == FOUR.tobytes()


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("align", [1, 64])
def test_parameters_are_writable_and_aligned_whatever_the_archive(deflate, align):
    root = tuple_of(tensor(storage("0"), (4,), (1,)), tensor(storage("0"), (2,), (1,)))
    entries = [Entry("m/data/0", FOUR.tobytes(), deflate=deflate, align=align), *script_entries(root)]
    entries[0].name = "m/data/0"
    a, b = load(None, None, entries=entries)
    a[0] = 7
    assert b[0] == 7 and a.flags.aligned and a.flags.writeable


def test_requires_grad_is_reported():
    seen = []
    found = load_one(tensor(storage("0"), (4,), (1,), grad=True), on_tensor=lambda t, grad: seen.append((t, grad)))
    assert seen == [(found, True)] and seen[0][0] is found


# Element types ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [n for n in BY_IR_NAME if n != "ComplexHalf" and not n.startswith("Q")])
@pytest.mark.parametrize("order", ["little", "big"])
def test_every_element_type_in_both_byte_orders(kind, order):
    dtype = BY_IR_NAME[kind].dtype
    values = np.arange(4).astype(dtype)
    raw = values.view(np.uint8)
    if order == "big":
        unit = dtype.itemsize // (2 if dtype.kind == "c" else 1)
        raw = values.view(f"u{unit}").byteswap()
    root = tensor(storage("0", kind), (4,), (1,))
    entries = [e for e in script_entries(root, {"0": raw.tobytes()}) if e.name != "m/byteorder"]
    found = load(None, None, entries=[*entries, Entry("m/byteorder", order.encode())])
    assert found.dtype == dtype and found.flags.writeable
    assert found.tobytes() == values.tobytes()


def test_bools_are_zero_or_one():
    found = load_one(tensor(storage("0", "Bool"), (4,), (1,)), b"\0\1\2\xff")
    assert found.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_complex_halves_become_complex64():
    halves = np.array([1, 2, 3, 4], np.float16)
    for order, data in (("little", halves), ("big", halves.byteswap())):
        root = tensor(storage("0", "ComplexHalf", 2), (2,), (1,))
        entries = [e for e in script_entries(root, {"0": data.tobytes()}) if e.name != "m/byteorder"]
        found = load(None, None, entries=[*entries, Entry("m/byteorder", order.encode())])
        assert found.dtype == np.complex64 and found.tolist() == [1 + 2j, 3 + 4j]


def test_conjugate_and_negative_bits_are_resolved():
    def bits(key):
        return (
            name("torch.jit._pickle", "restore_type_tag")
            + b"}"
            + text(key)
            + b"\x88s"
            + text("Dict[str, bool]")
            + b"\x86R"
        )

    data = np.array([1 + 2j, 3 - 4j], np.complex64).tobytes()
    shared = storage("0", "ComplexFloat", 2)
    assert load_one(tensor(shared, (2,), (1,), bits=bits("conj")), data).tolist() == [1 - 2j, 3 + 4j]
    assert load_one(tensor(storage("0"), (2,), (1,), bits=bits("neg"))).tolist() == [0, -1]
    refused(tensor(storage("0"), (2,), (1,), bits=bits("conj")), error=PickleError)
    refused(tensor(storage("0"), (2,), (1,), bits=bits("moon")), error=PickleError)
    refused(tensor(storage("0", "Int"), (2,), (1,), bits=bits("neg")), error=PickleError)
    # Even one that claims more elements than memory has: only the storage is copied.
    huge = load_one(tensor(storage("0"), (1 << 40,), (0,), bits=bits("neg")))
    assert huge.shape == (1 << 40,) and huge[5] == 0


def qtensor(quantizer, kind="QInt8", size=(2, 2), grad=b"\x89"):
    items = (storage("0", kind), integer(0), ints(size), ints((2, 1)), quantizer, grad, b"}")
    return name("torch._utils", "_rebuild_qtensor") + tuple_of(*items) + b"R"


HALF = b"G" + b"\x3f\xe0\0\0\0\0\0\0"


def test_quantised_tensors():
    q = load_one(qtensor(tuple_of(name("torch", "per_tensor_affine"), HALF, integer(3))))
    assert isinstance(q, QTensor) and q.values.dtype == np.int8 and (q.dtype, q.scale, q.zero_point) == (12, 0.5, 3)
    scales = tensor(storage("1", "Double", 2), (2,), (1,))
    points = tensor(storage("2", "Long", 2), (2,), (1,))
    parts = {"0": bytes(16), "1": np.array([0.5, 1]).tobytes(), "2": np.array([3, 4]).tobytes()}
    channel = name("torch", "per_channel_affine")
    q = load(qtensor(tuple_of(channel, scales, points, integer(1))), parts)
    assert q.axis == 1 and q.scale.tolist() == [0.5, 1] and q.zero_point.tolist() == [3, 4]
    for bad in (
        tuple_of(channel, scales, points, integer(2)),
        tuple_of(channel, scales, scales, integer(0)),
        tuple_of(channel, HALF, points, integer(0)),
        tuple_of(name("torch", "per_tensor_affine"), integer(1), integer(3)),
        tuple_of(name("torch", "per_tensor_symmetric"), HALF, integer(3)),
        tuple_of(text("per_tensor_affine"), HALF, integer(3)),
        b")",
    ):
        with pytest.raises(PickleError):
            load(qtensor(bad), parts)
    with pytest.raises(PickleError, match="not quantised"):
        load(qtensor(tuple_of(name("torch", "per_tensor_affine"), HALF, integer(3)), "Float"), parts)


def sparse(*items):
    return name("torch._utils", "_rebuild_sparse_tensor") + tuple_of(*items, b"}") + b"R"


def test_sparse_tensors():
    parts = {"0": FOUR.tobytes(), "1": np.array([0, 1, 2, 0, 1, 1, 2, 0]).tobytes()}

    def longs(size, stride, offset=0):
        return tensor(storage("1", "Long", 8), size, stride, offset)

    values = tensor(storage("0"), (3,), (1,))
    coo = load(sparse(integer(1), ints((3, 2)), b"\x89", longs((2, 3), (3, 1)), values), parts)
    assert isinstance(coo, SparseTensor) and coo.layout == 1 and coo.shape == (3, 2) and len(coo.parts) == 2
    csr = sparse(
        integer(2), ints((2, 3)), b"\x89", longs((3,), (1,)), longs((2,), (1,), 5), tensor(storage("0"), (2,), (1,))
    )
    assert load(csr, parts).layout == 2
    for bad in (
        sparse(integer(1), ints((2, 2)), b"\x89", longs((2, 3), (3, 1)), values),  # index 2 of 2
        sparse(integer(1), ints((3, 2, 1)), b"\x89", longs((2, 3), (3, 1)), values),
        sparse(integer(1), ints((3, -2)), b"\x89", longs((2, 3), (3, 1)), values),
        sparse(integer(1), ints((3, 2)), b"\x89", longs((2, 2), (3, 1)), values),
        sparse(integer(1), ints((3,)), b"\x89", longs((1, 1 << 40), (0, 0)), tensor(storage("0"), (1 << 40,), (0,))),
        sparse(integer(1), ints((3, 2)), b"\x89", values, values),
        sparse(integer(2), ints((2, 3)), b"\x89", longs((3,), (1,)), longs((3,), (1,)), values),
        sparse(
            integer(2), ints((2, 1)), b"\x89", longs((3,), (1,)), longs((2,), (1,), 5), tensor(storage("0"), (2,), (1,))
        ),
        sparse(integer(3), ints((2, 3)), b"\x89", values, values, values),
        sparse(integer(1), b"N", b"\x89", values, values),
    ):
        with pytest.raises(PickleError):
            load(bad, parts)


@pytest.mark.parametrize(
    "code",
    [
        tuple_of(text("storage")) + b"Q",
        tuple_of(text("storage"), text("Float"), text("0"), text("cpu"), integer(1)) + b"Q",
        tuple_of(text("module"), name("torch", "FloatStorage"), text("0"), text("cpu"), integer(1)) + b"Q",
        tuple_of(text("storage"), name("torch", "FloatStorage"), integer(0), text("cpu"), integer(1)) + b"Q",
        tuple_of(text("storage"), name("torch", "FloatStorage"), text("0"), text("cpu"), HALF) + b"Q",
        tensor(b"N", (1,), (1,)),
        tensor(storage("0"), (1, 1), (1,)),
        name("torch._utils", "_rebuild_tensor_v2")
        + tuple_of(storage("0"), HALF, ints((1,)), ints((1,)), b"\x89", b"}")
        + b"R",
        name("torch._utils", "_rebuild_tensor_v2")
        + tuple_of(storage("0"), integer(0), tuple_of(b"\x88"), ints((1,)))
        + b"R",
        name("torch._utils", "_rebuild_tensor_v2")
        + tuple_of(storage("0"), integer(0), ints((1,)), ints((1,)), b"N")
        + b"R",
        name("torch._utils", "_rebuild_parameter") + tuple_of(b"N", b"\x88", b"}") + b"R",
    ],
)
def test_arguments_of_the_wrong_kind(code):
    assert refused(code, error=PickleError).code == "pickle-arguments"


# Devices ------------------------------------------------------------------------------------------------------------


class Place:
    """A stand-in for a GPU: arrays are lists of (device, values)."""

    def __init__(self):
        self.calls = []

    def __call__(self, flat, device):
        self.calls.append(str(device))
        return ("gpu", device, flat)

    @staticmethod
    def as_strided(flat, offset, size, stride):
        return (*flat, offset, size, stride)


GPU = tensor(storage("0", device="cuda:1"), (2,), (1,), offset=1)


def test_a_gpu_storage_without_a_gpu():
    message = str(refused(GPU, error=DeviceError))
    assert "cuda:1" in message and "map_location='cpu'" in message
    assert load_one(tensor(storage("0", device="meta"), (4,), (1,))).tolist() == [0, 1, 2, 3]
    refused(tensor(storage("0", device="toaster"), (4,), (1,)), error=DeviceError)


def test_map_location_in_all_its_forms():
    class TorchDevice:
        type = "cpu"

        def __str__(self):
            return "cpu"

        def __call__(self):  # torch.device is callable, too
            raise AssertionError

    forms = ("cpu", Device("cpu"), TorchDevice(), {"cuda:1": "cpu"}, lambda s, where: s, lambda s, where: "cpu")
    for where in forms:
        assert load_one(GPU, map_location=where).tolist() == [1, 2]
    for where in ({"cuda:0": "cpu"}, lambda s, where: None, "cuda"):
        refused(GPU, error=DeviceError, map_location=where)
    for where in (3, "toaster", lambda s, where: 3, lambda s, where: s[:1], lambda s: s):
        refused(GPU, error=DeviceError, map_location=where)


def test_a_storage_is_brought_to_its_device_once():
    place = Place()
    root = tuple_of(GPU, tensor(storage("0", device="cuda:1"), (4,), (1,)))
    a, b = load(root, {"0": FOUR.tobytes()}, place=place, as_strided=Place.as_strided)
    assert place.calls == ["cuda:1"]
    assert a[2] is b[2] and a[3:] == (1, (2,), (1,)) and b[3:] == (0, (4,), (1,))
    with pytest.raises(DeviceError, match="as_strided"):
        load(root, {"0": FOUR.tobytes()}, place=place)


# Against PyTorch ----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_tensors_written_by_torch():
    torch = pytest.importorskip("torch")
    base = torch.arange(12.0)
    wanted = {
        "base": base, "view": base[3:9].view(2, 3).t(),
        "half": torch.randn(3).half(), "bfloat": torch.randn(3).bfloat16(),
        "complex": torch.randn(2, dtype=torch.complex64), "conj": torch.randn(2, dtype=torch.complex128).conj(),
        "imag": torch.randn(2, dtype=torch.complex64).conj().imag, "bool": torch.tensor([True, False]),
        "expanded": torch.ones(1).expand(3, 4), "empty": torch.zeros(0, 3), "scalar": torch.tensor(5),
        "u16": torch.arange(3, dtype=torch.int32).to(torch.uint16), "f8": torch.ones(3).to(torch.float8_e4m3fn),
        "nhwc": torch.randn(1, 2, 3, 4).to(memory_format=torch.channels_last),
    }  # fmt: skip

    module = torch.nn.Module()
    for key, value in wanted.items():
        module.register_buffer(f"t_{key}", value)
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(module), stream)

    class Root:
        def new(self):
            return {}

        def build(self, obj, state):
            obj.update(state)

    reader = StorageReader(Archive(stream.getvalue()), "data")
    found = torch_unpickler(reader, "data.pkl", find_class=lambda m, n: Root()).load()
    for key, value in wanted.items():
        array = found[f"t_{key}"]
        assert array.shape == tuple(value.shape), key
        if key not in ("empty", "conj", "imag"):
            assert array.strides == tuple(s * array.itemsize for s in value.stride()), key
        plain = value.resolve_conj().resolve_neg().contiguous()
        assert np.ascontiguousarray(array).tobytes() == plain.view(-1).view(torch.uint8).numpy().tobytes(), key
    assert np.shares_memory(found["t_base"], found["t_view"])


@pytest.mark.filterwarnings("ignore")
def test_quantised_and_sparse_tensors_written_by_torch():
    torch = pytest.importorskip("torch")
    module = torch.nn.Module()
    x = torch.randn(3, 4)
    module.q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
    module.c = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8)
    module.s = torch.eye(3).to_sparse()
    module.r = torch.eye(3).to_sparse_csr()
    stream = io.BytesIO()
    torch.jit.save(torch.jit.script(module), stream)

    class Root:
        def new(self):
            return {}

        def build(self, obj, state):
            obj.update(state)

    reader = StorageReader(Archive(stream.getvalue()), "data")
    found = torch_unpickler(reader, "data.pkl", find_class=lambda m, n: Root()).load()
    assert np.array_equal(found["q"].values, module.q.int_repr().numpy()) and found["q"].zero_point == 3
    assert np.array_equal(found["c"].values, module.c.int_repr().numpy()) and found["c"].axis == 0
    assert np.allclose(found["c"].scale, [0.1, 0.2, 0.3])
    assert np.array_equal(found["s"].parts[0], module.s.coalesce().indices().numpy()) and found["s"].shape == (3, 3)
    assert [p.tolist() for p in found["r"].parts] == [[0, 1, 2, 3], [0, 1, 2], [1, 1, 1]]


def test_a_whole_pickle_of_torch_save():
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save(torch.nn.Linear(2, 3).state_dict(), stream)
    reader = StorageReader(Archive(stream.getvalue(), kind="any"), "data")
    found = torch_unpickler(reader, "data.pkl").load()
    assert {k: v.shape for k, v in found.items()} == {"weight": (3, 2), "bias": (3,)}
