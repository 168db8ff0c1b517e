"""Snippets that PyTorch refuses or fails on and gpujit takes, with Python's own meaning: Python is the judge."""

from tests.frontend.language import array, program

X = array([1.0, -2.0])

SNIPPETS = [
    program("global_constants", "K = 5\nS = 's'\nP = 2.5\nB = True\nN = None\nT3 = (1, 2.5, 'a')\ndef f(x: int):\n    return x + K, S, P * x, B, N is None, T3, T3[1]\n", (3,)),
    program("global_from_math", "from math import sqrt, pi\ndef f(x: float):\n    return sqrt(x) * pi\n", (4.0,)),
    program("closure_constant", "def make(k):\n    def f(x: int):\n        return x + k\n    return f\nf = make(7)\n", (3,)),
    program("reversed_iterables", "def f(a: List[int], s: str):\n    return [x for x in reversed(a)], [i for i in reversed(range(2, 5))], [c for c in reversed(s)]\n", ([1, 2, 3], "abc")),
    program("refine_after_continue", "def f(xs: List[Optional[int]]):\n    t = 0\n    for x in xs:\n        if x is None:\n            continue\n        t += x\n    return t\n", ([1, None, 2],)),
    program("refine_after_break", "def f(xs: List[Optional[int]]):\n    t = 0\n    for x in xs:\n        if x is None:\n            break\n        t += x\n    return t\n", ([1, None, 2],)),
    program("unpack_to_list_target", "def f(n: int):\n    [a, b] = [n, n + 1]\n    return a * b\n", (3,)),
    program("with_return_on_one_path", """
class Logged:
    def __init__(self, log: List[str]):
        self.log = log

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, t: Any, v: Any, tb: Any):
        self.log.append("out")

def f(n: int):
    log: List[str] = []
    with Logged(log):
        if n > 1:
            return log, n
        log.append("body")
    log.append("after")
    return log, -n
""", (1,), (2,)),
    program("class_without_init", "class A:\n    def get(self) -> int:\n        return 5\ndef f(n: int):\n    return A().get()\n", (3,)),
    program("class_fields_in_branches", """
class A:
    def __init__(self, n: int):
        if n > 1:
            self.x = 1
        else:
            self.x = 2

def f(n: int):
    return A(n).x
""", (3,), (0,)),
    program("class_field_types_from_body", """
class A:
    x: Optional[int]

    def __init__(self):
        self.x = None

def f(n: int):
    a = A()
    a.x = n
    y = a.x
    return y is None
""", (3,)),
    program("class_augmented_item", """
class Cells:
    def __init__(self):
        self.cells = [1, 2]

    def __getitem__(self, i: int) -> int:
        return self.cells[i]

    def __setitem__(self, i: int, v: int) -> None:
        self.cells[i] = v

def f(n: int):
    c = Cells()
    c[0] += n
    return c.cells
""", (3,)),
    program("dataclass_in_dataclass", """
@dataclasses.dataclass
class A:
    x: int

@dataclasses.dataclass
class B:
    a: A
    t: List[int]

def f(n: int):
    b = B(A(n), [1, 2])
    b.a.x += 1
    return b.a.x + b.t[1], A(1) != A(2), A(1) != A(1)
""", (3,)),
    program("dataclass_undecorated", """
@dataclasses.dataclass
class D:
    x: int
    y: float = 1.5

def f(n: int):
    d = D(n)
    return d.x, d.y, d == D(n), D(n, y=2.5).y
""", (3,)),
    program("method_default_inside_class", """
class A:
    def __init__(self):
        self.n = 0

    def bump(self, by: int = 2) -> int:
        self.n += by
        return self.n

    def twice(self) -> int:
        self.bump()
        return self.bump()

def f(n: int):
    return A().twice()
""", (3,)),
    program("variable_type_comment", "def f(n: int):\n    xs = []  # type: List[int]\n    xs.append(n)\n    return xs\n", (2,)),
    program("tuple_slice_with_exits", "def f(t: Tuple[int, int, int]):\n    for x in t[::-1]:\n        if x < 3:\n            return x\n    return 0\n", ((1, 2, 3),)),
]
