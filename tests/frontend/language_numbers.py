"""Snippets: arithmetic of Python numbers, conversions, comparisons, math, rounding, overflow."""

from tests.frontend.language import expressions, program

SNIPPETS = [
    *expressions(
        "int_op", "a: int, b: int",
        """
        a + b
        a - b
        a * b
        a / b
        a // b
        a % b
        a ** b
        a & b
        a | b
        a ^ b
        a << 2
        a >> 1
        -a
        a == b, a != b, a < b, a <= b, a > b, a >= b
        divmod(a, b)
        pow(a, b)
        min(a, b), max(a, b), abs(a)
        0 < a < b
        a < b <= 9 != 4
        (a, b) if a > b else (b, a)
        a and b
        bool(a) and bool(b)
        bool(a) or b > 2
        not a
        float(a) + b
        a + 1.5
        2.5 * b
        int(a / b)
        round(a)
        complex(a, b)
        math.gcd(a, b)
        str(a) + str(b)
        hex(a), oct(a), bin(a)
        range(a)
        sum([a, b]), min([a, b, 0])
        +a
        ~a
        a @ b
        """,
        (7, 2), (-7, 3), (3, 7),
    ),
    *expressions(
        "float_op", "x: float, y: float",
        """
        x + y
        x - y, x * y
        x / y
        x // y
        x % y
        x ** y
        -x
        x == y, x < y, x >= y
        divmod(x, y)
        min(x, y), max(x, 1), max(1, y)
        abs(x), round(x), int(x)
        bool(x), str(x), complex(x)
        math.floor(x), math.ceil(x), math.trunc(y)
        math.sqrt(abs(x)), math.exp(y), math.log(abs(y))
        math.sin(x), math.cos(x), math.tan(y), math.atan2(x, y)
        math.pow(x, 2), math.fabs(x), math.copysign(x, y), math.fmod(x, y)
        math.isnan(x), math.isinf(y), math.isfinite(x)
        math.degrees(x), math.radians(x), math.log2(abs(y)), math.log10(abs(y)), math.log1p(abs(x))
        math.erf(x), math.gamma(abs(y)), math.expm1(x), math.tanh(x), math.asinh(y)
        math.pi * x, math.inf > x, math.e
        float('inf') > x, float('nan') != x, -float('inf')
        f'{x} {y}'
        1 if x > y else 2
        x if x > y else y
        round(x, 1)
        float(1) / 3
        0.1 + 0.2, 1e10, 1e-7, 100.0
        str(1.0), str(1e-7), str(123456789.0), str(0.1)
        int(x) // 2, x // 1
        x > 1 and y > 1 or x < 0
        sum([x, y]), max([x, y])
        x & y
        """,
        (7.5, 2.0), (-7.25, 3.5), (0.5, -2.0),
    ),
    *expressions(
        "bool_op", "p: bool, q: bool",
        """
        p and q
        p or q
        not p
        p == q, p != q
        p & q, p | q, p ^ q
        int(p) + int(q)
        p + q
        p + 1
        float(p)
        str(p)
        p is q
        p < q
        all([p, q]), any([p, q])
        1 if p else 0
        max(p, q)
        not p and not q or p
        """,
        (True, False), (True, True), (False, False),
    ),
    *expressions(
        "complex_op", "z: complex, x: float",
        """
        z + x
        z * z - 1j
        z / (1 + 2j)
        abs(z)
        z.real, z.imag
        z == x
        z ** (2 + 0j)
        -z
        str(z)
        complex(x)
        z < z
        """,
        (2 + 3j, 1.5), (-1j, 0.0),
    ),
    *expressions(
        "convert", "s: str, n: int",
        """
        int(s)
        float(s) + n
        int(float(s))
        bool(s)
        str(n) + s
        bool(n), int(True), float(False)
        int(2.9), int(-2.9), float(n)
        ord('a'), chr(n + 97)
        """,
        ("12", 3), ("7", 0),
    ),
    program("int_wraps", "def f(a: int):\n    return a + 1, a * 2, -a - 2\n", (9223372036854775807,)),
    program("int_huge_literal", "def f(a: int):\n    return a + 99999999999999999999\n", (1,)),
    program("div_by_zero_float", "def f(a: int):\n    return a / 0, 1.0 / a\n", (0,), (3,)),
    program("div_by_zero_int", "def f(a: int):\n    return 5 // a\n", (0,), (3,)),
    program("int_to_float_assign", "def f(a: int):\n    x: float = a\n    return x\n", (1,)),
    program("float_literal_int", "def f():\n    x: float = 1\n    return x\n", ()),
    program("aug_numbers", """
def f(a: int, b: float):
    a += 2
    a -= 1
    a *= 3
    b /= 2
    b += a
    a %= 5
    a <<= 2
    a |= 1
    a &= 7
    a ^= 2
    b **= 2
    return a, b
""", (3, 4.0)),
    program("aug_floordiv", "def f(a: int):\n    a //= 2\n    return a\n", (7,)),
    program("aug_changes_type", "def f(a: int):\n    a /= 2\n    return a\n", (7,)),
    program("mixed_list_sum", "def f(a: int):\n    return sum([1, 2, a]) + sum([0.5, 1.5])\n", (3,)),
    program("number_return_float", "def f(x: Tensor) -> float:\n    return x.item()\n"),
    program("round_half", "def f():\n    return round(0.5), round(1.5), round(2.5), round(-0.5), round(2.7)\n", ()),
    program("pow_ints", "def f(a: int):\n    return 2 ** a, a ** 2, pow(a, 3), a ** -1\n", (3,)),
    program("int_bounds", "def f():\n    return -9223372036854775808, 9223372036854775807\n", ()),
    program("hash_number", "def f(a: int):\n    return hash(a) == hash(a)\n", (3,)),
    program("float_default", "def f(a: float = 2):\n    return a\n", (), (3.0,), (4,)),
    program("bool_argument_from_int", "def f(a: int):\n    return a + 1\n", (True,)),
    program("chained_three", "def f(a: int):\n    return 1 < a < 5 < 10, 1 < a > 2 == 2\n", (3,), (7,)),
]
