"""From bytes to a module: objects and sharing, state methods, old and new files, damage of every kind."""

from __future__ import annotations

import io
import os
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpujit
from gpujit.support.errors import GpujitError, InternalError, LimitError, PickleError
from tests.programs import Member, Obj, Place, Typed, View, archive, archive_entries, forward, module
from tests.serialization import archives as a
from tests.serialization.archives import pickled, write_zip

# More for a long run: GPUJIT_FUZZ=20000 python -m pytest tests/serialization/test_reader.py
EXAMPLES = int(os.environ.get("GPUJIT_FUZZ", "150"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def load(source: str, attributes: Any = None, **options: Any) -> gpujit.ScriptModule:
    return gpujit.load(archive(source, attributes or {}, **options))


def replaced(source: str, attributes: Any, name: str, data: bytes | None, **options: Any) -> bytes:
    """The archive with one member's bytes replaced, or without that member."""
    entries = archive_entries(source, attributes, **options)
    kept = [e for e in entries if data is not None or e.name != f"m/{name}"]
    for e in kept:
        if e.name == f"m/{name}":
            e.data = data or b""
    return write_zip(kept)


# ----------------------------------------------------------------------------------------- what files hold


def test_arrays_share_storages_and_identity_as_they_did() -> None:
    flat = np.arange(6, dtype=np.float32)
    whole = View(flat, (2, 3), (3, 1))
    attributes = {
        "a": whole,
        "same": whole,
        "row": View(flat, (3,), (1,), 3),
        "t": View(flat, (3, 2), (1, 3)),
        "e": View(flat, (2, 4), (0, 0), 5),
    }
    m = load(module("", "\n".join(f"{n} : Tensor" for n in attributes)), attributes)
    assert m.a is m.same and m.e.tolist() == [[5] * 4] * 2
    m.a[1, 0] = 100
    assert m.row.tolist() == [100, 4, 5] and m.t.tolist() == [[0, 100], [1, 4], [2, 5]]


DTYPES = [
    "float32",
    "float64",
    "float16",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "bool",
    "complex64",
    "complex128",
    ml_dtypes.bfloat16,
]


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_every_dtype_in_both_byte_orders(byteorder: str) -> None:
    arrays = {f"a{i}": np.array([0, 1, 1, 0]).astype(d) for i, d in enumerate(DTYPES)}
    arrays["zero"] = np.array(2.5)
    arrays["none"] = np.empty((0, 3), np.float32)
    m = load(module("", "\n".join(f"{n} : Tensor" for n in arrays)), arrays, byteorder=byteorder)
    for name, want in arrays.items():
        found = getattr(m, name)
        assert (found.dtype, found.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(found.astype(complex), want.astype(complex))


def test_objects_met_twice_are_one_object() -> None:
    k = Obj("__torch__.K", {"n": 1})
    both = Typed([k, k], "List[__torch__.K]")
    source = module(
        forward("-> Tuple[int, bool]", "self.a.n = 5\nreturn ((self.l[1]).n, torch.__is__(self.a, self.l[0]))"),
        "a : __torch__.K\nb : Optional[__torch__.K]\nl : List[__torch__.K]",
    )
    m = load(source + "class K:\n  n : int\n", {"a": k, "b": k, "l": both})
    assert m() == (5, True) and m.b.n == 5 and m.a == m.b


def test_containers_met_twice_are_one_container() -> None:
    shared = Typed(["x"], "List[str]")
    m = load(
        module(
            'def add(self) -> NoneType:\n  _0 = torch.append(self.a, "y")', "a : List[str]\nb : Dict[str, List[str]]"
        ),
        {"a": shared, "b": Typed({"k": shared}, "Dict[str, List[str]]")},
    )
    m.add()
    assert m.b == {"k": ["x", "y"]}


def test_values_of_every_kind() -> None:
    source = module(
        "",
        "i : int\nbig : int\nf : float\nc : complex\ns : str\nn : NoneType\nd : Device\n"
        "t : Tuple[int, Tuple[str]]\nem : __torch__.E\n"
        "lo : List[Optional[float]]\nde : Dict[__torch__.E, int]\ndi : Dict[int, List[str]]\n"
        "nt : __torch__.P\nu : Union[int, str]\nany : Any",
    )
    source += 'class E(Enum):\n  A = "a"\n  B = "b"\nclass P(NamedTuple):\n  x : int\n  e : Optional[__torch__.E]\n'
    b = Member("__torch__.E", "b")
    m = load(
        source,
        {
            "i": -5,
            "big": 1 << 62,
            "f": float("inf"),
            "c": 1 - 2j,
            "s": "ä\0\U0001f600",
            "n": None,
            "d": Place("cuda:1"),
            "t": (1, ("a",)),
            "em": b,
            "lo": Typed([1.0, None], "List[Optional[float]]"),
            "de": Typed({b: 3}, "Dict[__torch__.E, int]"),
            "di": Typed({2: ["x"]}, "Dict[int, List[str]]"),
            "nt": (1, b),
            "u": "text",
            "any": [1, 2],
        },
    )
    assert (m.i, m.big, m.f, m.c, m.s, m.n, str(m.d), m.t) == (
        -5,
        1 << 62,
        np.inf,
        1 - 2j,
        "ä\0\U0001f600",
        None,
        "cuda:1",
        (1, ("a",)),
    )
    assert (
        m.em.name == "B"
        and m.lo == [1.0, None]
        and m.de == {m.em: 3}
        and m.di == {2: ["x"]}
        and m.u == "text"
        and m.any == [1, 2]
    )
    assert (m.nt.x, m.nt.e) == (1, m.em)


STATE = module(forward("n: int -> int", "return torch.add((self.k).n, n)"), "k : __torch__.K")
STATE += """class K:
  n : int
  t : Tensor
  def __getstate__(self) -> Tuple[int, Tensor]:
    return (self.n, self.t)
  def __setstate__(self, s: Tuple[int, Tensor]) -> NoneType:
    a, b = s
    self.n = torch.mul(a, 2)
    self.t = torch.neg(b)
"""


def test_state_methods_run_on_the_interpreter() -> None:
    m = load(STATE, {"k": Obj("__torch__.K", (4, np.ones(2)))})
    assert m(1) == 9 and m.k.t.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("state", "body", "text"),
    [
        (
            (1,),
            "pass",
            "the state of __torch__.K is declared as Tuple[int, Tensor] but the file holds a tuple of (int 1)",
        ),
        ((1, 2), "pass", "the state of __torch__.K is declared as Tuple[int, Tensor]"),
        ((1, np.ones(1)), 'ops.prim.RaiseException("no")', "no"),
        ((1, np.ones(1)), "(self).__setstate__(s, )", "nested more than"),
        ((1, np.ones(1)), "self.n = self.zz", "has no attribute or method 'zz'"),
        ((1, np.ones(1)), "x = torch.frobnicate(s)", "operator aten::frobnicate has no entry"),
    ],
)
def test_state_methods_that_fail_make_the_load_fail(state: Any, body: str, text: str) -> None:
    source = STATE[: STATE.index("    a, b = s")] + f"    {body}\n"
    with pytest.raises(GpujitError) as caught:
        load(source, {"k": Obj("__torch__.K", state)})
    assert text in str(caught.value) and not isinstance(caught.value, InternalError)


def test_a_state_method_that_leaves_attributes_unset() -> None:
    source = STATE[: STATE.index("    a, b = s")] + "    pass\n"
    with pytest.raises(GpujitError, match="n"):
        load(source, {"k": Obj("__torch__.K", (1, np.ones(1)))})(1)


def test_constants_of_every_kind() -> None:
    source = (
        module(
            forward(
                "-> Tuple[Tensor, str, List[str], Tuple[int, float], int]",
                "return (CONSTANTS.c0, CONSTANTS.c1, CONSTANTS.c2, CONSTANTS.c3, (CONSTANTS.c4).n)",
            ),
        )
        + "class K:\n  n : int\n"
    )
    constants = (np.arange(3), "grüß", Typed(["a"], "List[str]"), (1, 2.5), Obj("__torch__.K", {"n": 7}))
    t, *rest = load(source, constants=constants)()
    assert t.tolist() == [0, 1, 2] and rest == ["grüß", ["a"], (1, 2.5), 7]


# -------------------------------------------------------------------------------------- members that miss

PLAIN = module(forward("x: Tensor", "return torch.mul(x, self.w)"), "w : Tensor")


def test_optional_members_may_be_missing() -> None:
    for name in ("byteorder", "data/1"):
        data = replaced(PLAIN, {"w": np.ones(2)}, name, None)
        assert gpujit.load(data)(np.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize("name", ["data.pkl", "constants.pkl", "version", "data/0", "code/__torch__.py"])
def test_needed_members_may_not(name: str) -> None:
    with pytest.raises(gpujit.LoadError) as caught:
        gpujit.load(replaced(PLAIN, {"w": np.ones(2)}, name, None))
    assert name.removeprefix("code/__torch__").removesuffix(".py") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("constants.pkl", pickled(a.integer(3)), "constants.pkl does not hold a tuple"),
        ("data.pkl", pickled(a.integer(3)), "data.pkl holds a int 3, not a TorchScript module"),
        ("data.pkl", pickled(b"N"), "not a TorchScript module"),
        ("data/0", b"", "are there"),
        ("byteorder", b"middle", "expected 'little' or 'big'"),
        ("version", b"three", "not a number"),
    ],
)
def test_members_of_the_wrong_kind(name: str, data: bytes, text: str) -> None:
    with pytest.raises(gpujit.LoadError) as caught:
        gpujit.load(replaced(PLAIN, {"w": np.ones(2)}, name, data))
    assert text in str(caught.value) and "file <bytes>" in str(caught.value)


def test_an_object_that_holds_itself_is_refused() -> None:
    k = Obj("__torch__.M")
    k.attributes = {"m": k}
    with pytest.raises(PickleError):
        gpujit.load(archive(module("", "m : Optional[__torch__.M]"), {"m": k}))


def test_a_chain_of_thousands_of_objects_is_refused_in_time() -> None:
    body = a.name("__torch__", "M") + b")\x81}(" + a.text("m")
    data = replaced(module("", "m : Optional[__torch__.M]"), {}, "data.pkl", pickled(body * 3000 + b"N" + b"ub" * 3000))
    start = time.perf_counter()
    with pytest.raises(PickleError, match="nested"):
        gpujit.load(data)
    assert time.perf_counter() - start < 5


def test_deep_trees_of_modules_are_walked_without_recursion() -> None:
    body = a.name("__torch__", "M") + b")\x81}(" + a.text("m")
    m = gpujit.load(
        replaced(module("", "m : Optional[__torch__.M]"), {}, "data.pkl", pickled(body * 400 + b"N" + b"ub" * 400))
    )
    assert len(list(m.named_modules())) == 400 and m.state_dict() == {} and m.eval() is m
    lines = repr(m).split("\n")
    assert (
        lines[1] == "  (m): ScriptModule(original_name=M"
        and lines[399].endswith("=M)")
        and lines[-1] == ")"
        and len(lines) == 799
    )


def test_a_module_put_into_itself_is_walked_once() -> None:
    m = load(module("", "m : Optional[__torch__.M]\nw : Tensor", parameters=["w"]), {"m": None, "w": np.ones(1)})
    m.m = m
    assert repr(m) == "ScriptModule(original_name=M)" and list(m.state_dict()) == ["w"] and len(list(m.modules())) == 1


# ------------------------------------------------------------------------------------------------- damage

SMALL = module(
    """
    def forward(self: __torch__.M, x: Tensor, n: int=2) -> Tuple[Tensor, List[str]]:
      y = torch.mul(x, self.w)
      l = annotate(List[str], [])
      for i in range(n):
        if torch.gt(i, 0):
          y0 = torch.add(y, CONSTANTS.c0)
        else:
          y0 = __torch__.f(y, (self.k).n, )
        _0 = torch.append(l, torch.format("{} {}", i, __torch__.E.B.name))
        y = y0
      self.count = torch.add(self.count, 1)
      return (y, l)
    """,
    "w : Tensor\ncount : int\nk : __torch__.K\nd : Dict[str, int]\nc : Final[int] = 3",
    parameters=["w"],
)
SMALL += "class K:\n  n : int\n  e : __torch__.E\nclass E(Enum):\n  A = 1\n  B = 2\n"
SMALL += "def f(x: Tensor, n: int) -> Tensor:\n  return torch.sub(x, n)\n"
SMALL_ATTRIBUTES = {
    "w": np.ones(3, np.float32),
    "count": 0,
    "k": Obj("__torch__.K", {"n": 2, "e": Member("__torch__.E", 1)}),
    "d": Typed({"a": 1}, "Dict[str, int]"),
}
ENTRIES = archive_entries(SMALL, SMALL_ATTRIBUTES, constants=(np.ones(3, np.float32),))
X = np.ones(3, np.float32)


def use(data: bytes) -> Any:
    """Load and run; a result or an error of gpujit's family, soon."""
    start = time.perf_counter()
    try:
        m = gpujit.load(data)
        result = m(X)
        list(m.named_parameters())
        repr(m)
        m.inlined_graph  # noqa: B018
    except InternalError:
        raise
    except GpujitError as error:
        assert error.code and error.message and len(str(error)) < 100_000
        return error
    finally:
        assert time.perf_counter() - start < 10
    return result


def test_the_small_model_itself_is_sound() -> None:
    y, names = use(write_zip(ENTRIES))
    assert y.tolist() == [0, 0, 0] and names == ["0 B", "1 B"]


def edited(name: str, edit: Any) -> bytes:
    """The archive with one member changed; its checksum is that of the changed bytes."""
    entries = archive_entries(SMALL, SMALL_ATTRIBUTES, constants=(np.ones(3, np.float32),))
    for e in entries:
        if e.name == name:
            e.data = edit(e.data)
    return write_zip(entries)


def flips(edits: list[tuple[int, int]]) -> Any:
    def edit(data: bytes) -> bytes:
        out = bytearray(data)
        for at, value in edits:
            out[at % len(out)] = value
        return bytes(out)

    return edit


EDITS = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4)
PRINTABLE = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.sampled_from(b"abx019 .,:()[]{}\"'=-+_\n*@#\\")), min_size=1, max_size=4
)


@QUICK
@given(EDITS)
def test_bytes_changed_in_the_objects(edits: list[tuple[int, int]]) -> None:
    use(edited("m/data.pkl", flips(edits)))


@QUICK
@given(PRINTABLE)
def test_characters_changed_in_the_source(edits: list[tuple[int, int]]) -> None:
    use(edited("m/code/__torch__.py", flips(edits)))


WORDS = [
    w.encode()
    for w in (
        "x",
        "y",
        "self",
        "self.w",
        "self.k",
        "l",
        "i",
        "n",
        "torch.mul",
        "torch.add",
        "torch.append",
        "__torch__.f",
        "__torch__.E.B",
        "CONSTANTS.c0",
        "CONSTANTS.c9",
        "None",
        "True",
        "1",
        "-1",
        "2.5",
        '"a"',
        "[]",
        "[1]",
        "(1, 2)",
        "{}",
        "Tensor",
        "int",
        "List[str]",
        "Optional[int]",
        "Any",
        "return x",
        "pass",
        "__torch__.K",
        "__torch__.M",
        "annotate(int, 1)",
        "uninitialized(Tensor)",
        "(self).forward(x, )",
        "1 << 70",
        "x.zz",
    )
]
SLOTS = [
    w.encode()
    for w in (
        "self.w",
        "x",
        "CONSTANTS.c0",
        "torch.mul",
        "torch.gt",
        "i",
        "n",
        "y",
        "Tensor",
        "int",
        "0",
        "List[str]",
        "__torch__.f",
        "l",
    )
]


@QUICK
@given(st.lists(st.tuples(st.sampled_from(SLOTS), st.integers(0, 5), st.sampled_from(WORDS)), min_size=1, max_size=3))
def test_words_changed_in_the_source(changes: list[tuple[bytes, int, bytes]]) -> None:
    """Programs that parse and mean something else: most must fail to compile, none may break the interpreter."""

    def edit(data: bytes) -> bytes:
        for old, which, new in changes:
            at = -1
            for _ in range(which + 1):
                found = data.find(old, at + 1)
                at = found if found >= 0 else at
            if at >= 0:
                data = data[:at] + new + data[at + len(old) :]
        return data

    use(edited("m/code/__torch__.py", edit))


@QUICK
@given(st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_lines_moved_or_doubled_in_the_source(a_: int, b: int, double: bool) -> None:
    def edit(data: bytes) -> bytes:
        lines = data.split(b"\n")
        i, j = a_ % len(lines), b % len(lines)
        lines.insert(j, lines[i] if double else lines.pop(i))
        return b"\n".join(lines)

    use(edited("m/code/__torch__.py", edit))


@QUICK
@given(st.integers(0, 1 << 16), st.integers(0, 1 << 16))
def test_pickles_spliced_from_two_places(start: int, end: int) -> None:
    def edit(data: bytes) -> bytes:
        i, j = sorted((start % len(data), end % len(data)))
        return data[:i] + data[j:]

    use(edited("m/data.pkl", edit))


# ------------------------------------------------------------------------------------------ PyTorch as judge


@pytest.mark.torch
def test_pytorch_reads_the_same_archives() -> None:
    """What tests.programs writes is what PyTorch reads: the helper's files are real ones."""
    torch = pytest.importorskip("torch")
    data = write_zip(ENTRIES)
    theirs, ours = torch.jit.load(io.BytesIO(data)), gpujit.load(data)
    for n in (0, 1, 3):
        want, found = theirs(torch.from_numpy(X), n), ours(X, n)
        assert found[0].tolist() == want[0].tolist() and found[1] == want[1]
    assert theirs.count == ours.count == 3
    state = torch.jit.load(io.BytesIO(archive(STATE, {"k": Obj("__torch__.K", (4, np.ones(2)))})))
    assert state(1) == load(STATE, {"k": Obj("__torch__.K", (4, np.ones(2)))})(1)


def test_limit_errors_of_state_methods_are_load_time_errors_too() -> None:
    source = STATE[: STATE.index("    a, b = s")] + "    (self).__setstate__(s, )\n"
    with pytest.raises(LimitError):
        load(source, {"k": Obj("__torch__.K", (1, np.ones(1)))})
