"""Snippets: classes, properties, operators, NamedTuples, Enums, dataclasses, interfaces."""

from tests.frontend.language import array, program

X = array([1.0, 2.0])

COUNTER = """
class Counter:
    def __init__(self, start: int, name: str = "c"):
        self.count = start
        self.name = name
        self.log: List[int] = []

    def bump(self, by: int = 1) -> int:
        self.count += by
        self.log.append(self.count)
        return self.count

    def twice(self):
        self.bump(1)
        return self.bump(2)

    @property
    def double(self) -> int:
        return self.count * 2

    @double.setter
    def double(self, v: int):
        self.count = v // 2

    @staticmethod
    def helper(x: int) -> int:
        return x * 3

    def __len__(self) -> int:
        return len(self.log)

    def __getitem__(self, i: int) -> int:
        return self.log[i]

    def __setitem__(self, i: int, v: int) -> None:
        self.log[i] = v

    def __contains__(self, v: int) -> bool:
        return v in self.log

    def __add__(self, other: int) -> int:
        return self.count + other

    def __eq__(self, other: "Counter") -> bool:
        return self.count == other.count

    def __lt__(self, other: "Counter") -> bool:
        return self.count < other.count

    def __neg__(self) -> int:
        return -self.count

    def __call__(self, x: int) -> int:
        return self.count * x

    def __str__(self) -> str:
        return "Counter " + str(self.count)

    def __bool__(self) -> bool:
        return self.count > 0
"""


def counter(name, body, *inputs):
    """A snippet with the class above."""
    return program(name, COUNTER + "\ndef f(n: int):\n    c = Counter(n)\n" + body, *(inputs or ((3,),)))


SNIPPETS = [
    counter("class_attribute", "    return c.count, c.name, c.log\n"),
    counter("class_method", "    return c.bump(), c.bump(5), c.bump(by=2), c.log\n"),
    counter("class_method_calls_method", "    return c.twice(), c.log\n"),
    counter("class_property", "    return c.double\n"),
    counter("class_property_set", "    c.double = 20\n    return c.count\n"),
    counter("class_static", "    return Counter.helper(n)\n"),
    counter("class_len", "    c.bump()\n    return len(c)\n"),
    counter("class_getitem", "    c.bump()\n    c[0] = 77\n    return c[0]\n"),
    counter("class_contains", "    c.bump()\n    return 4 in c, 5 in c, 5 not in c\n"),
    counter("class_add", "    return c + 10\n"),
    counter("class_compare", "    d = Counter(n + 1)\n    return c == d, c < d, d < c\n"),
    counter("class_neg", "    return -c\n"),
    counter("class_call", "    return c(10)\n"),
    counter("class_str", "    return str(c)\n"),
    counter("class_bool", "    if c:\n        return 1\n    return 0\n", (3,), (0,)),
    counter("class_sub_missing", "    return c - 1\n"),
    counter("class_attribute_set", "    c.count = 9\n    c.count *= 2\n    return c.count\n"),
    counter("class_attribute_new", "    c.other = 9\n    return c.count\n"),
    counter("class_attribute_wrong_type", "    c.count = 'a'\n    return c.count\n"),
    counter("class_attribute_missing", "    return c.nothing\n"),
    counter("class_method_missing", "    return c.nothing()\n"),
    counter("class_keyword", "    d = Counter(start=n, name='d')\n    return d.name, d.count\n"),
    counter("class_too_many", "    d = Counter(n, 'a', 3)\n    return d.name\n"),
    counter("class_wrong_argument", "    d = Counter('a')\n    return d.name\n"),
    counter("class_alias", "    d = c\n    d.bump()\n    return c.count, c is d, c is not d\n"),
    counter("class_in_list", "    cs = [c, Counter(5)]\n    cs[0].bump()\n    return c.count, cs[1].count, [k.count for k in cs]\n"),
    counter("class_in_dict", "    cs = {'a': c}\n    cs['a'].bump()\n    return c.count\n"),
    counter("class_in_tuple", "    t = (c, 1)\n    t[0].bump()\n    return c.count\n"),
    counter("class_in_branch", "    if n > 1:\n        d = Counter(1)\n    else:\n        d = c\n    return d.count\n", (3,), (0,)),
    counter("class_in_loop", "    for i in range(n):\n        c = Counter(i)\n    return c.count\n"),
    counter("class_isinstance", "    return isinstance(c, Counter)\n"),
    counter("class_optional", "    d: Optional[Counter] = None\n    if n > 1:\n        d = c\n    if d is not None:\n        return d.count\n    return -1\n", (3,), (0,)),
    counter("class_hasattr", "    return hasattr(c, 'count'), hasattr(c, 'nothing'), hasattr(c, 'bump')\n"),
    counter("class_getattr", "    return getattr(c, 'count')\n"),
    program("class_passed", COUNTER + "\ndef g(c: Counter) -> int:\n    return c.bump()\ndef f(n: int):\n    c = Counter(n)\n    return g(c) + c.count\n", (3,)),
    program("class_returned", COUNTER + "\ndef g(n: int) -> Counter:\n    return Counter(n)\ndef f(n: int):\n    return g(n).count\n", (3,)),
    program("class_nested", """
class Inner:
    def __init__(self, x: Tensor):
        self.x = x

class Outer:
    def __init__(self, x: Tensor):
        self.inner = Inner(x)
        self.items = [self.inner]

    def total(self):
        return self.inner.x.sum() + self.items[0].x.sum()

def f(x: Tensor):
    o = Outer(x)
    o.inner.x += 1
    return o.total()
""", (X,)),
    program("class_linked", """
class Node:
    def __init__(self, v: int):
        self.v = v
        self.next: Optional[int] = None

def f(n: int):
    a = Node(n)
    a.next = 4
    b = a.next
    if b is not None:
        return b + a.v
    return 0
""", (3,)),
    program("class_inherits", "class A:\n    def __init__(self):\n        self.x = 1\nclass B(A):\n    pass\ndef f(n: int):\n    return B().x\n", (3,)),
    program("class_attribute_outside_init", """
class A:
    def __init__(self, n: int):
        self.x = 1

    def grow(self):
        self.y = 2

def f(n: int):
    a = A(n)
    a.grow()
    return a.x
""", (3,)),
    program("class_recursive_method", """
class A:
    def __init__(self, n: int):
        self.x = n

    def down(self) -> int:
        if self.x > 0:
            self.x -= 1
            return self.down()
        return 0

def f(n: int):
    return A(n).down()
""", (3,)),
    program("class_context", """
class Logged:
    def __init__(self, log: List[str]):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return self

    def __exit__(self, t: Any, v: Any, tb: Any):
        self.log.append("out")

def f(n: int):
    log: List[str] = []
    with Logged(log) as l:
        l.log.append("body")
        with Logged(log), Logged(log):
            n += 1
    return log, n
""", (3,)),
    program("class_context_missing", "class A:\n    def __init__(self):\n        self.x = 1\ndef f(n: int):\n    with A():\n        n += 1\n    return n\n", (3,)),
    program("class_context_int", "def f(n: int):\n    with n:\n        n += 1\n    return n\n", (3,)),
    program("named_tuple", """
class Point(NamedTuple):
    x: int
    label: str

def f(n: int):
    p = Point(n, "a")
    q = Point(label="b", x=p.x + 1)
    a, b = q
    return p, q.x, q[1], a, b, len(p)
""", (3,)),
    program("named_tuple_default", "class P(NamedTuple):\n    x: int\n    y: int = 5\ndef f(n: int):\n    return P(n), P(n, 2).y\n", (3,)),
    program("named_tuple_argument", "class P(NamedTuple):\n    x: int\n    y: Tensor\ndef g(p: P) -> Tensor:\n    return p.y * p.x\ndef f(x: Tensor):\n    return g(P(2, x))\n", (X,)),
    program("named_tuple_collections", "import collections\nP = collections.namedtuple('P', ['a', 'b'])\ndef f(x: Tensor):\n    p = P(x, x + 1)\n    return p.a + p.b\n", (X,)),
    program("named_tuple_wrong", "class P(NamedTuple):\n    x: int\ndef f(n: int):\n    return P('a').x\n", (3,)),
    program("named_tuple_missing", "class P(NamedTuple):\n    x: int\ndef f(n: int):\n    return P(n).y\n", (3,)),
    program("named_tuple_equal", "class P(NamedTuple):\n    x: int\ndef f(n: int):\n    return P(n) == P(n)\n", (3,)),
    program("named_tuple_list", "class P(NamedTuple):\n    x: int\ndef f(n: int):\n    ps = [P(i) for i in range(n)]\n    return sum([p.x for p in ps])\n", (3,)),
    program("enum_value", "class C(enum.Enum):\n    RED = 1\n    BLUE = 2\ndef f(n: int):\n    return C.RED.value, C.BLUE.name\n", (3,)),
    program("enum_compare", "class C(enum.Enum):\n    RED = 1\n    BLUE = 2\ndef f(n: int):\n    c = C.RED if n > 1 else C.BLUE\n    return c == C.RED, c != C.RED, c.value, c is C.RED\n", (3,), (0,)),
    program("enum_strings", "class C(enum.Enum):\n    A = 'a'\n    B = 'b'\ndef g(c: C) -> str:\n    return c.value + c.name\ndef f(n: int):\n    return g(C.A) + g(C.B)\n", (3,)),
    program("enum_floats", "class C(enum.Enum):\n    A = 1.5\n    B = 2.5\ndef f(n: int):\n    return C.A.value + C.B.value\n", (3,)),
    program("enum_mixed", "class C(enum.Enum):\n    A = 1\n    B = 'b'\ndef f(n: int):\n    return C.A.value\n", (3,)),
    program("enum_missing", "class C(enum.Enum):\n    A = 1\ndef f(n: int):\n    return C.Z.value\n", (3,)),
    program("enum_loop", "class C(enum.Enum):\n    A = 1\n    B = 2\ndef f(n: int):\n    t = 0\n    for c in C:\n        t += c.value\n    return t\n", (3,)),
    program("enum_global", "class C(enum.Enum):\n    A = 1\n    B = 2\nDEFAULT = C.B\ndef f(n: int):\n    return DEFAULT.value, DEFAULT == C.B\n", (3,)),
    program("enum_default", "class C(enum.Enum):\n    A = 1\n    B = 2\ndef f(n: int, c: C = C.B):\n    return c.value + n\n", (3,)),
    program("enum_list", "class C(enum.Enum):\n    A = 1\n    B = 2\ndef f(n: int):\n    cs = [C.A, C.B, C.A]\n    return [c.value for c in cs]\n", (3,)),
    program("int_enum", "class C(enum.IntEnum):\n    A = 1\n    B = 2\ndef f(n: int):\n    return C.A.value\n", (3,)),
    program("dataclass", """
@torch.jit.script
@dataclasses.dataclass
class D:
    x: int
    y: float = 1.5

def f(n: int):
    d = D(n)
    e = D(n, y=2.5)
    return d.x, d.y, e.y, d == e, d == D(n)
""", (3,)),
    program("dataclass_order", """
@torch.jit.script
@dataclasses.dataclass(order=True)
class D:
    x: int
    y: int

def f(n: int):
    return D(1, 2) < D(1, 3), D(2, 1) > D(1, 9), D(1, 2) <= D(1, 2), D(1, 1) >= D(1, 2)
""", (3,)),
    program("dataclass_post_init", """
@torch.jit.script
@dataclasses.dataclass
class D:
    x: int
    y: int = 0

    def __post_init__(self):
        self.y = self.x * 2

    def total(self) -> int:
        return self.x + self.y

def f(n: int):
    return D(n).total()
""", (3,)),
    program("interface", """
@torch.jit.interface
class Shape:
    def area(self) -> float:
        pass
    def scaled(self, k: float) -> float:
        pass

@torch.jit.script
class Square:
    def __init__(self, s: float):
        self.s = s
    def area(self) -> float:
        return self.s * self.s
    def scaled(self, k: float) -> float:
        return self.area() * k

@torch.jit.script
class Circle:
    def __init__(self, r: float):
        self.r = r
    def area(self) -> float:
        return 3.0 * self.r * self.r
    def scaled(self, k: float) -> float:
        return self.area() + k

def g(s: Shape) -> float:
    return s.area() + s.scaled(2.0)

def f(n: int):
    return g(Square(2.0)) + g(Circle(1.0))
""", (3,)),
    program("interface_missing_method", """
@torch.jit.interface
class Shape:
    def area(self) -> float:
        pass

@torch.jit.script
class Square:
    def __init__(self, s: float):
        self.s = s

def g(s: Shape) -> float:
    return s.area()

def f(n: int):
    return g(Square(2.0))
""", (3,)),
    program("class_unused_method", """
class A:
    def __init__(self, n: int):
        self.x = n

    @torch.jit.unused
    def python(self, n: int) -> int:
        import numpy
        return numpy.ones(n)

    def get(self) -> int:
        if self.x > 100:
            return self.python(1)
        return self.x

def f(n: int):
    return A(n).get()
""", (3,)),
    program("class_in_function", """
def make():
    class A:
        def __init__(self, n: int):
            self.x = n
    return A
A = make()
def f(n: int):
    return A(n).x
""", (3,)),
    program("class_default_tensor", "class A:\n    def __init__(self, x: Tensor):\n        self.x = x\n    def add(self, y: Tensor):\n        self.x = self.x + y\n        return self\ndef f(x: Tensor):\n    return A(x).add(x).add(x).x\n", (X,)),
]
