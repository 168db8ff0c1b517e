"""Programs over every construct of the language, scripted by PyTorch into tests/frontend/language.zip. Needs torch.

Each entry of CASES is a name, a function or module to script, and a list of argument tuples to run it on.
"""

import enum
import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import torch
from torch import Tensor, nn

CASES: List[Tuple[str, Any, List[Tuple[Any, ...]]]] = []


def case(*inputs):
    def add(program):
        CASES.append((program.__name__, program, list(inputs)))
        return program

    return add


def T(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


# ------------------------------------------------------------------------------------------------ control flow


@case((1,), (5,), (-3,), (100,))
def if_chain(n: int) -> str:
    if n < 0:
        return "negative"
    elif n < 2:
        return "small"
    elif n < 50:
        return "middle"
    return "large"


@case((0,), (7,), (12,))
def while_break_continue(n: int) -> Tuple[int, int]:
    total = 0
    i = 0
    while True:
        i += 1
        if i > n:
            break
        if i % 3 == 0:
            continue
        total += i
    return total, i


@case((T(1.0, -2.0, 3.0),))
def loop_early_return(x: Tensor) -> int:
    for i in range(x.numel()):
        if bool(x[i] < 0):
            return i
    return -1


@case((4,), (0,))
def nested_loops(n: int) -> List[List[int]]:
    out: List[List[int]] = []
    for i in range(n):
        row: List[int] = []
        for j in range(i, n, 2):
            row.append(i * j)
        out.append(row)
    return out


@case((T(1.0, 2.0),), (T(-1.0, -2.0),))
def data_dependent_if(x: Tensor) -> Tensor:
    if x.sum() > 0:
        y = x * 2
        z = 1.0
    else:
        y = x - 1
        z = 2.5
    return y + z


@case((3, None), (3, 4))
def optional_refinement(a: int, b: Optional[int]) -> int:
    if b is not None and b > a:
        return a + b
    if b is None:
        b = 10
    return a * b


@case((T(1.0),), (T(5.0),))
def ternary_and_logic(x: Tensor) -> Tuple[bool, int, bool]:
    big = bool(x > 2)
    return (big or bool(x < 0)), (1 if big else 0), not big and True


@case(([1, 2, 3],), ([],))
def loop_carried_list(xs: List[int]) -> Tuple[int, List[int]]:
    best = -1
    seen: List[int] = []
    for x in xs:
        if x > best:
            best, last = x, best
            seen.append(last)
    return best, seen


@case((5,))
def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@case((3,))
def comprehension(n: int) -> Tuple[List[int], Dict[int, str]]:
    squares = [i * i for i in range(n)]
    return squares, {i: str(i) for i in squares}


@case(([1, 2], ["a", "b", "c"]))
def zip_enumerate(xs: List[int], ys: List[str]) -> List[str]:
    out: List[str] = []
    for i, y in enumerate(ys):
        out.append(y + str(i))
    for x, y in zip(xs, ys):
        out.append(f"{x}{y}")
    for k in range(len(xs)):
        out.append(str(xs[-1 - k]))
    return out


# --------------------------------------------------------------------------------------------------- numbers


@case((7, 2, 1.5), (-7, 2, -0.5), (7, -3, 2.0))
def arithmetic(a: int, b: int, c: float) -> Tuple[int, int, float, float, float, int, float]:
    return a // b, a % b, a / b, c // 0.4, c % 0.4, a - b * 2, float(a) ** 2


@case((6, 3))
def integer_bits(a: int, b: int) -> Tuple[int, int, int, int, int]:
    return a & b, a | b, a ^ b, a << b, a >> 1


@case((9223372036854775807,))
def integer_wraps(a: int) -> Tuple[int, int]:
    return a + 1, a * 2


@case((2.5,), (-2.5,), (3.49,))
def float_functions(x: float) -> Tuple[float, int, int, float, float]:
    return round(x), math.floor(x), math.ceil(x), math.sqrt(abs(x)), math.exp(-x)


@case((2, 5),)
def powers(a: int, b: int) -> Tuple[float, float]:
    return a**b, pow(b, a)


@case((1.0,), (1e-7,), (1.5,), (123456789.125,))
def float_to_string(x: float) -> str:
    return str(x) + " " + str((1, x, "a")) + f" {x}"


@case(("7", "1e3"))
def string_to_number(a: str, b: str) -> Tuple[int, float]:
    return int(a), float(b)


@case((3, 2.0))
def min_max_sum(a: int, b: float) -> Tuple[float, float, int, int, bool, bool]:
    xs = [3, 1, a]
    return max(a, b), min(1.5, b), sum(xs), max(xs), any([True, False]), all([True, False])


@case((2 + 3j, 1.5))
def complex_numbers(z: complex, x: float) -> Tuple[complex, float, complex]:
    return z * x + 1j, abs(z), z * z


@case((True, 3),)
def bool_arithmetic(b: bool, n: int) -> Tuple[int, float, bool]:
    return int(b) + n, float(b), bool(n)


@case((17, 5))
def divmod_hex(a: int, b: int) -> Tuple[Tuple[int, int], str, str, str, int, str]:
    return divmod(a, b), hex(a), bin(a), oct(a), ord("a"), chr(100)


# --------------------------------------------------------------------------------------------------- strings


@case(("Hello, World",))
def string_methods(s: str) -> Tuple[str, str, List[str], int, bool, str, str, str]:
    return s.upper(), s.replace("l", "L"), s.split(", "), s.find("o"), s.startswith("He"), s[1:4], s[-1], "-".join(s.split("o"))


@case(("abc", 3))
def string_format(s: str, n: int) -> Tuple[str, str, str]:
    return "{}-{}".format(s, n), "%s=%d" % (s, n), f"<{s}:{n}>"


@case(("b",), ("z",))
def string_compare(s: str) -> Tuple[bool, bool, bool]:
    return s == "b", s < "c", s in ["a", "b"]


@case(("  x y ",))
def string_strip(s: str) -> Tuple[str, str, str, bool, List[str]]:
    return s.strip(), s.lstrip(), s.rstrip(), s.isspace(), s.split()


@case(("line1\nline2\t\"q\"\\",))
def string_escapes(s: str) -> str:
    return s + "\n\t\"quoted\" 'single' \\ end"


@case(("ü",))
def string_unicode(s: str) -> str:
    return s + "éß→"


# ------------------------------------------------------------------------------------------------- containers


@case(([3, 1, 2],))
def list_methods(xs: List[int]) -> Tuple[List[int], int, List[int], int, int, List[int]]:
    ys = xs.copy()
    ys.sort()
    ys.insert(0, 9)
    ys.extend([7, 7])
    p = ys.pop()
    ys.remove(9)
    ys.reverse()
    return ys, p, xs[1:], ys.index(1), ys.count(7), xs + [1] * 2


@case(([1, 2, 3, 4],))
def list_mutation(xs: List[int]) -> List[int]:
    ys = xs
    ys[0] = 10
    ys[-1] += 5
    del ys[1]
    return xs


@case((["b", "a"],))
def list_of_strings(xs: List[str]) -> Tuple[List[str], bool, int]:
    return sorted(xs), "a" in xs, len(xs)


@case(({"a": 1, "b": 2},))
def dict_methods(d: Dict[str, int]) -> Tuple[List[str], List[int], int, int, bool, Dict[str, int]]:
    e = d.copy()
    e["c"] = 3
    e["a"] += 10
    got = e.get("zz", -1)
    popped = e.pop("b")
    e.update({"q": 5})
    if "a" in e:
        e.setdefault("s", 1)
    return list(e.keys()), list(e.values()), got, popped, "b" in e, e


@case(({1: T(1.0), 2: T(2.0)},))
def dict_loop(d: Dict[int, Tensor]) -> Tensor:
    total = torch.zeros(1)
    for k, v in d.items():
        total = total + k * v
    for key in d:
        total += key
    return total


@case(((1, "a", 2.5),))
def tuple_operations(t: Tuple[int, str, float]) -> Tuple[str, Tuple[int, str], Tuple[int, str, float, int], int]:
    a, b, c = t
    return b, t[:2], t + (a,), len(t)


@case((T(1.0, 2.0, 3.0),))
def list_unpack(x: Tensor) -> Tensor:
    a, b, c = x.unbind(0)
    p, q = torch.split(x, [1, 2])
    return a + b * c + p + q.sum()


@case(([[1, 2], [3]],))
def nested_lists(xs: List[List[int]]) -> Tuple[int, List[int]]:
    flat: List[int] = []
    for x in xs:
        flat += x
    return xs[1][0], flat


@case(([None, 3, None],))
def optional_elements(xs: List[Optional[int]]) -> int:
    total = 0
    for x in xs:
        if x is not None:
            total += x
    return total


# ------------------------------------------------------------------------------------------ types and classes


class Point(NamedTuple):
    x: int
    label: str


@case((3,))
def named_tuples(n: int) -> Tuple[Point, int, str]:
    p = Point(n, "p")
    q = Point(x=p.x + 1, label=p.label + "q")
    return q, p.x, q[1]


class Color(enum.Enum):
    RED = 1
    GREEN = 2


@case((1,), (2,))
def enums(n: int) -> Tuple[bool, str, int]:
    c = Color.RED if n == 1 else Color.GREEN
    return c == Color.RED, c.name, c.value


@torch.jit.script
class Counter:
    def __init__(self, start: int):
        self.count = start
        self.log: List[str] = []

    def bump(self, by: int = 1) -> int:
        self.count += by
        self.log.append(str(self.count))
        return self.count

    @property
    def double(self) -> int:
        return self.count * 2

    def __add__(self, other: "Counter") -> int:
        return self.count + other.count

    def __len__(self) -> int:
        return len(self.log)


@case((2,))
def class_objects(n: int) -> Tuple[int, int, List[str], int, int]:
    c = Counter(n)
    c.bump()
    c.bump(5)
    d = c
    d.bump(-1)
    return c.count, c.double, c.log, c + d, len(c)


@case((3,), ("s",))
def union_refinement(x: Union[int, str]) -> str:
    if isinstance(x, int):
        return str(x + 1)
    else:
        return x + "!"


@case((1,), (2.5,), ("a",), ([1],), ((1, 2),))
def any_isinstance(x: Any) -> str:
    if isinstance(x, int):
        return "int"
    elif isinstance(x, float):
        return "float"
    elif isinstance(x, str):
        return "str"
    elif isinstance(x, list):
        return "list"
    return "other"


# --------------------------------------------------------------------------------------------------- tensors


@case((torch.arange(12.0).reshape(3, 4),))
def indexing(x: Tensor) -> List[Tensor]:
    return [x[0], x[:, 1], x[1:, ::2], x[..., -1], x[None, 0], x[[0, 2]], x[x > 5], x[1, 2], x[torch.tensor([1]), 1:3]]


@case((torch.zeros(3, 4),))
def slice_assignment(x: Tensor) -> Tensor:
    x = x.clone()
    x[0] = 1.0
    x[:, 1] = torch.arange(3.0)
    x[1, 2:] += 5
    x[x > 4] = -1
    x[[0, 2], 3] = 9.0
    y = x.view(-1)
    y[0] = 42
    return x


@case((T(1.0, 2.0), 3), (torch.tensor([1, 2]), 3))
def scalar_promotion(x: Tensor, n: int) -> List[Tensor]:
    return [x + n, x * 2.5, n - x, 1 / x, x // 2, x % 2, -x, x > 1, x == n, x**2, 2**x]


@case((T(1.0, -1.0),))
def inplace_aliases(x: Tensor) -> Tuple[Tensor, Tensor]:
    a = x.clone()
    b = a
    b.add_(1)
    a *= 2
    c = a[0:1]
    c.zero_()
    return a, b


@case((torch.ones(2, 3),))
def shapes(x: Tensor) -> Tuple[List[int], int, int, int, bool, bool, int]:
    return x.shape, x.size(1), x.dim(), x.numel(), x.is_cuda, x.dtype == torch.float32, x.shape[-1]


@case((torch.ones(2, 2),))
def factories(x: Tensor) -> List[Tensor]:
    return [
        torch.zeros(2), torch.ones(1, 2, dtype=torch.int64), torch.arange(3), torch.full([2], 7), torch.full_like(x, 1.5),
        torch.tensor([1, 2]), torch.tensor([[1.0], [2.0]]), torch.tensor(3), x.new_zeros(2), torch.eye(2), torch.linspace(0, 1, 3),
    ]


@case((T(1.5),), (T(-2.0),))
def tensor_to_python(x: Tensor) -> Tuple[int, float, bool, float]:
    return int(x), float(x), bool(x), x.item() + 1.0


@case((torch.arange(4.0).reshape(2, 2),))
def tolist(x: Tensor) -> Tuple[List[List[float]], List[float]]:
    a: List[List[float]] = x.tolist()
    b: List[float] = x[0].tolist()
    return a, b


@case(([T(1.0), T(2.0)],))
def stack_and_cat(xs: List[Tensor]) -> Tuple[Tensor, Tensor]:
    return torch.stack(xs), torch.cat(xs + [torch.zeros(2)])


# ------------------------------------------------------------------------------- functions, errors, closures


def helper(x: Tensor, scale: float = 2.0, shift: int = 0) -> Tensor:
    return x * scale + shift


@case((T(1.0),))
def calls(x: Tensor) -> Tensor:
    return helper(x) + helper(x, 3.0) + helper(x, shift=4) + helper(scale=0.5, x=x)


@case((T(1.0, 2.0),))
def fork_wait(x: Tensor) -> Tensor:
    first = torch.jit.fork(helper, x, 3.0)
    second = torch.jit.fork(helper, x)
    return torch.jit.wait(first) + torch.jit.wait(second)


@case((1,), (0,))
def assertion(n: int) -> int:
    assert n > 0, f"n is {n}"
    return n


@case((2,), (-2,))
def raises(n: int) -> int:
    if n < 0:
        raise ValueError("negative: " + str(n))
    return n


@case(([1, 2], 0), ([1, 2], 5))
def list_index_error(xs: List[int], i: int) -> int:
    return xs[i]


@case(({"a": 1}, "a"), ({"a": 1}, "q"))
def dict_key_error(d: Dict[str, int], k: str) -> int:
    return d[k]


@case((1, 0), (7, 2))
def division_by_zero(a: int, b: int) -> int:
    return a // b


@case((torch.ones(2, 3), torch.ones(2, 3)),)
def shape_error(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a, b)


@case((T(1.0),))
def no_grad_block(x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 2
    return y


# --------------------------------------------------------------------------------------------------- modules


class Linears(nn.Module):
    scales: List[float]

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.table = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Identity()})
        self.scales = [1.0, 0.5]
        self.register_buffer("offset", torch.tensor([1.0, 2.0, 3.0]))
        self.seq = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
        self.missing: Optional[Tensor] = None

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) * self.scales[i] + self.offset
        out: Dict[str, Tensor] = {}
        for name, m in self.table.items():
            out[name] = m(x)
        out["seq"] = self.seq(x)
        if self.missing is not None:
            out["missing"] = self.missing
        return out


CASES.append(("Linears", Linears, [(torch.ones(2, 3),)]))


class Stateful(nn.Module):
    history: List[int]

    def __init__(self):
        super().__init__()
        self.count = 0
        self.history = []
        self.register_buffer("total", torch.zeros(2))
        self.names: Dict[str, int] = {"x": 1}

    @torch.jit.export
    def reset(self) -> None:
        self.count = 0
        self.history.clear()
        self.total = torch.zeros(2)

    @torch.jit.export
    def peek(self) -> Tuple[int, List[int]]:
        return self.count, self.history

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.history.append(self.count)
        self.total += x
        self.names["x"] = self.count
        return self.total * self.names["x"]


CASES.append(("Stateful", Stateful, [(T(1.0, 2.0),), (T(3.0, 4.0),)]))


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) + 1


def _pre(self, inputs: Tuple[Tensor]) -> Tuple[Tensor]:
    return (inputs[0] * 10,)


def _post(self, inputs: Tuple[Tensor], output: Tensor) -> Tensor:
    return output + inputs[0]


def hooked() -> nn.Module:
    m = Hooked()
    m.register_forward_pre_hook(_pre)
    m.register_forward_hook(_post)
    return m


CASES.append(("Hooked", hooked, [(T(1.0),), (T(2.0, 3.0),)]))


class Ignoring(nn.Module):
    def __init__(self):
        super().__init__()
        self.k: torch.jit.Final[int] = 3
        self.flags: torch.jit.Final[List[str]] = ["a", "b"]

    @torch.jit.unused
    def python_only(self, x: Tensor) -> Tensor:
        return x.numpy()

    def forward(self, x: Tensor, mode: str = "a") -> Tensor:
        if mode in self.flags:
            return x * self.k
        return self.python_only(x)


CASES.append(("Ignoring", Ignoring, [(T(2.0),), (T(2.0), "b"), (T(2.0), "zzz")]))


@torch.jit.interface
class Transform(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Doubles(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Negates(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return -x


class UsesInterface(nn.Module):
    first: Transform
    second: Transform

    def __init__(self):
        super().__init__()
        self.first = Doubles()
        self.second = Negates()

    def forward(self, x: Tensor, swap: bool) -> Tensor:
        if swap:
            return self.second.forward(x) + 1
        return self.first.forward(x) + 1


CASES.append(("UsesInterface", UsesInterface, [(T(2.0), False), (T(2.0), True)]))


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a = nn.Linear(2, 2, bias=False)
        self.b = nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.register_buffer("view", torch.arange(6.0).reshape(2, 3).t()[1:])
        self.register_buffer("expanded", torch.ones(1).expand(4))

    def forward(self, x: Tensor) -> Tensor:
        self.a.weight.mul_(2)
        return self.b(x) + self.view.sum() + self.expanded.sum()


CASES.append(("Shared", Shared, [(torch.ones(1, 2),), (torch.ones(1, 2),)]))


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor, full: bool) -> Tuple[Tensor, Tensor, Tensor]:
        with torch.autocast("cpu"):
            y = self.inner(x)
            z = self.last(y)
            if full:
                with torch.autocast("cpu", enabled=False):
                    z = self.last(y.float())
        with torch.cpu.amp.autocast(dtype=torch.float16), torch.cuda.amp.autocast():
            w = self.last(x) + 1
        return y, z, w


CASES.append(("Autocast", Autocast, [(torch.ones(3, 4), True), (torch.ones(3, 4), False)]))


class TracedAutocast(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Conv1d(3, 4, 1), nn.GELU(), nn.Conv1d(4, 2, 1), nn.Softmax(1))

    def forward(self, x):
        with torch.autocast("cpu"):
            return self.body(x), torch.cat([self.body[0](x)[:, :3], x])


TRACED = torch.jit.trace(TracedAutocast().eval(), (torch.ones(1, 3, 5),), check_trace=False)
CASES.append(("TracedAutocast", TRACED, [(torch.linspace(-2, 2, 15).reshape(1, 3, 5),)]))
