"""Snippets: branches, loops, exits anywhere, unrolled loops, with, assert and raise."""

from tests.frontend.language import array, program

X = array([1.0, -2.0, 3.0])

SNIPPETS = [
    program("if_else", "def f(n: int):\n    if n > 1:\n        y = 'a'\n    else:\n        y = 'b'\n    return y\n", (1,), (2,)),
    program("elif_chain", """
def f(n: int):
    if n < 0:
        return "neg"
    elif n == 0:
        return "zero"
    elif n < 10:
        s = "small"
    else:
        s = "big"
    return s + str(n)
""", (-1,), (0,), (5,), (50,)),
    program("early_return", "def f(n: int):\n    if n > 1:\n        return 5\n    n += 1\n    return n\n", (1,), (2,)),
    program("early_return_nested", """
def f(n: int, m: int):
    if n > 1:
        if m > 1:
            return 5
        n += 10
    elif m == 7:
        return 9
    return n + m
""", (1, 1), (2, 2), (2, 1), (0, 7)),
    program("return_in_loop", """
def f(n: int):
    for i in range(n):
        if i * i > 10:
            return i
    return -1
""", (2,), (10,)),
    program("return_in_nested_loop", """
def f(n: int):
    total = 0
    for i in range(n):
        for j in range(i):
            if i * j > 6:
                return total
            total += i * j
        total += 100
    return -total
""", (2,), (10,)),
    program("break_in_while", """
def f(n: int):
    i = 0
    while True:
        i += 1
        if i * 3 > n:
            break
    return i
""", (10,), (0,)),
    program("continue_in_for", """
def f(n: int):
    total = 0
    for i in range(n):
        if i % 2 == 0:
            continue
        total += i
    return total
""", (10,), (0,)),
    program("break_continue_return", """
def f(n: int):
    total = 0
    for i in range(100):
        if i == n:
            break
        if i % 3 == 0:
            continue
        if total > 50:
            return -total
        total += i
    return total
""", (5,), (60,), (0,)),
    program("while_condition_after_break", """
def f(xs: List[int]):
    i = 0
    while xs[i] > 0:
        if i == len(xs) - 1:
            break
        i += 1
    return i
""", ([1, 2, 3],), ([1, 0, 3],)),
    program("nested_break", """
def f(n: int):
    out: List[int] = []
    for i in range(n):
        for j in range(n):
            if j == i:
                break
            out.append(i * 10 + j)
        if i == 3:
            break
    return out
""", (5,)),
    program("break_in_else", """
def f(n: int):
    k = 0
    while k < 100:
        if k < n:
            k += 2
        else:
            k += 1
            break
    return k
""", (9,)),
    program("deep_exits", """
def f(n: int):
    r = 0
    for i in range(n):
        if i > 2:
            if i > 4:
                if i > 6:
                    return r * 100
                r += 1
                continue
            r += 10
        else:
            r += 100
        r += 1000
    return r
""", (3,), (6,), (9,)),
    program("range_forms", """
def f(a: int, b: int, c: int):
    return [i for i in range(a)], [i for i in range(a, b)], [i for i in range(b, a, c)]
""", (2, 7, -2), (5, 1, 1)),
    program("range_negative_step", "def f():\n    return [i for i in range(5, 0, -1)]\n", ()),
    program("range_zero_step", "def f(s: int):\n    return [i for i in range(0, 5, s)]\n", (0,), (2,)),
    program("loop_variable_after", "def f(n: int):\n    i = 7\n    for i in range(n):\n        pass\n    return i\n", (3,), (0,)),
    program("loop_variable_undefined", "def f(n: int):\n    for i in range(n):\n        pass\n    return i\n", (3,)),
    program("list_loop", "def f(xs: List[float]):\n    t = 0.0\n    for x in xs:\n        t += x\n    return t\n", ([1.0, 2.5],), ([],)),
    program("dict_loop", "def f(d: Dict[str, int]):\n    t = ''\n    for k in d:\n        t += k * d[k] if False else k\n    return t\n", ({"a": 1, "b": 2},)),
    program("dict_items_loop", """
def f(d: Dict[str, int]):
    out: List[str] = []
    for k, v in d.items():
        out.append(k + str(v))
    for v in d.values():
        out.append(str(v))
    for k in d.keys():
        out.append(k)
    return out
""", ({"a": 1, "b": 2},)),
    program("tensor_loop", "def f(x: Tensor):\n    t = 0.0\n    for row in x:\n        t += float(row)\n    return t\n", (X,)),
    program("tuple_loop", "def f(t: Tuple[int, float]):\n    s = 0.0\n    for x in t:\n        s += x\n    return s\n", ((1, 2.5),)),
    program("tuple_loop_break", "def f(t: Tuple[int, int]):\n    s = 0\n    for x in t:\n        if x > 1:\n            break\n        s += x\n    return s\n", ((1, 2),)),
    program("tuple_loop_return", "def f(t: Tuple[int, int, int]):\n    for x in t:\n        if x > 1:\n            return x\n    return -1\n", ((1, 2, 3),), ((0, 0, 0),)),
    program("enumerate_start", "def f(xs: List[str]):\n    return [str(i) + x for i, x in enumerate(xs, 5)]\n", (["a", "b"],)),
    program("zip_lists", """
def f(a: List[int], b: List[str], c: List[float]):
    out: List[str] = []
    for x, y, z in zip(a, b, c):
        out.append(str(x) + y + str(z))
    return out
""", ([1, 2, 3], ["a", "b"], [0.5, 1.5, 2.5])),
    program("enumerate_zip", """
def f(a: List[int], b: List[int]):
    t = 0
    for i, (x, y) in enumerate(zip(a, b)):
        t += i * x * y
    return t
""", ([1, 2, 3], [4, 5, 6])),
    program("zip_range", "def f(a: List[int]):\n    return [x * i for x, i in zip(a, range(10, 20))]\n", ([1, 2, 3],)),
    program("enumerate_tuple", "def f(t: Tuple[int, int]):\n    s = 0\n    for i, x in enumerate(t):\n        s += i * x\n    return s\n", ((4, 5),)),
    program("loop_changes_list", """
def f(xs: List[int]):
    for x in xs:
        if x < 3:
            xs.append(x + 1)
    return xs
""", ([1],)),
    program("nested_function_values", """
def f(n: int):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a
""", (10,)),
    program("swap_in_if", "def f(a: int, b: int):\n    if a > b:\n        a, b = b, a\n    return a, b\n", (2, 1), (1, 2)),
    program("ternary_nested", "def f(n: int):\n    return 'a' if n < 1 else 'b' if n < 2 else 'c'\n", (0,), (1,), (2,)),
    program("ternary_lazy", "def f(xs: List[int], i: int):\n    return xs[i] if i < len(xs) else -1\n", ([1], 0), ([1], 4)),
    program("and_lazy", "def f(xs: List[int], i: int):\n    return i < len(xs) and xs[i] > 0\n", ([1], 0), ([1], 4)),
    program("or_lazy", "def f(xs: List[int], i: int):\n    return i >= len(xs) or xs[i] > 0\n", ([1], 0), ([1], 4)),
    program("defined_in_one_branch", "def f(n: int):\n    if n > 1:\n        y = 1\n    return y\n", (2,)),
    program("defined_after_raise", """
def f(n: int):
    if n > 1:
        y = 1
    else:
        raise ValueError("no " + str(n))
    return y
""", (2,), (0,)),
    program("types_differ", "def f(n: int):\n    if n > 1:\n        y = 1\n    else:\n        y = 'a'\n    return y\n", (2,)),
    program("types_differ_unused", "def f(n: int):\n    if n > 1:\n        y = 1\n    else:\n        y = 'a'\n    return n\n", (2,)),
    program("types_int_float", "def f(n: int):\n    if n > 1:\n        y = 1\n    else:\n        y = 2.0\n    return y\n", (2,)),
    program("type_changes_top", "def f(n: int):\n    x = n\n    x = str(x)\n    return x\n", (2,)),
    program("type_changes_in_if", "def f(n: int):\n    x = n\n    if n > 1:\n        x = 'a'\n    return n\n", (2,)),
    program("type_changes_in_loop", "def f(n: int):\n    x = n\n    for i in range(3):\n        x = 1.5\n    return x\n", (2,)),
    program("return_types_differ", "def f(n: int):\n    if n > 1:\n        return 1\n    return 'a'\n", (2,)),
    program("return_none_or_int", "def f(n: int):\n    if n > 1:\n        return 1\n    return None\n", (2,), (0,)),
    program("return_missing", "def f(n: int) -> int:\n    if n > 1:\n        return 1\n", (2,)),
    program("return_falls_off", "def f(n: int):\n    if n > 1:\n        return 1\n", (2,), (0,)),
    program("no_return", "def f(n: int):\n    n += 1\n", (2,)),
    program("bare_return", "def f(n: int):\n    if n > 1:\n        return\n    print(n)\n", (2,), (1,)),
    program("code_after_return", "def f(n: int):\n    return n\n    n += 1\n", (2,)),
    program("pass_only", "def f(n: int):\n    pass\n", (2,)),
    program("assert_message", "def f(n: int):\n    assert n > 1, f'n is {n}'\n    return n\n", (2,), (1,)),
    program("assert_bare", "def f(n: int):\n    assert n > 1\n    return n\n", (2,), (1,)),
    program("assert_tensor", "def f(x: Tensor):\n    assert x.numel() == 3\n    assert bool((x > -5).all()), 'low'\n    return x\n", (X,)),
    program("raise_in_branch", "def f(n: int):\n    if n < 0:\n        raise ValueError('negative')\n    return n\n", (2,), (-1,)),
    program("raise_bare_class", "def f(n: int):\n    if n < 0:\n        raise RuntimeError\n    return n\n", (2,), (-1,)),
    program("raise_two_arguments", "def f(n: int):\n    if n < 0:\n        raise ValueError('a', n)\n    return n\n", (2,), (-1,)),
    program("raise_only", "def f(n: int) -> int:\n    raise NotImplementedError('later')\n", (2,)),
    program("raise_in_loop", """
def f(n: int):
    i = 0
    while True:
        i += 1
        if i > n:
            raise RuntimeError(f"stop at {i}")
        if i == 4:
            break
    return i
""", (2,), (10,)),
    program("while_tensor_condition", "def f(x: Tensor):\n    while x.sum() < 10:\n        x = x * 2\n    return x\n", (array([1.0, 2.0]),)),
    program("if_tensor", "def f(x: Tensor):\n    if x.sum() > 0:\n        return x\n    return -x\n", (X,), (-X,)),
    program("if_int", "def f(n: int):\n    if n:\n        return 1\n    return 0\n", (2,), (0,)),
    program("if_float", "def f(n: float):\n    if n:\n        return 1\n    return 0\n", (2.0,), (0.0,)),
    program("if_list", "def f(n: List[int]):\n    if n:\n        return 1\n    return 0\n", ([2],), ([],)),
    program("if_str", "def f(n: str):\n    if n:\n        return 1\n    return 0\n", ("a",), ("",)),
    program("if_none", "def f(n: int):\n    if None:\n        return 1\n    return 0\n", (1,)),
    program("if_tuple", "def f(n: Tuple[int]):\n    if n:\n        return 1\n    return 0\n", ((1,),)),
    program("static_if", "def f(n: int):\n    if True:\n        x = n\n    else:\n        x = 'a'\n    return x\n", (1,)),
    program("is_scripting", "def f(n: int):\n    if torch.jit.is_scripting():\n        return n\n    else:\n        return undefined_name + 1\n", (1,)),
    program("while_false", "def f(n: int):\n    while False:\n        n += 1\n    return n\n", (1,)),
    program("for_else", "def f(n: int):\n    for i in range(n):\n        pass\n    else:\n        n = 0\n    return n\n", (1,)),
    program("while_else", "def f(n: int):\n    while n > 3:\n        n -= 1\n    else:\n        n = 0\n    return n\n", (1,)),
    program("no_grad", "def f(x: Tensor):\n    with torch.no_grad():\n        y = x * 2\n    return y\n", (X,)),
    program("with_return_inside", "def f(x: Tensor):\n    with torch.no_grad():\n        return x * 2\n", (X,)),
    program("collatz", """
def f(n: int):
    steps = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps
""", (27,)),
    program("primes", """
def f(n: int):
    out: List[int] = []
    for i in range(2, n):
        prime = True
        for p in out:
            if i % p == 0:
                prime = False
                break
        if prime:
            out.append(i)
    return out
""", (30,)),
    program("binary_search", """
def f(xs: List[int], x: int):
    lo = 0
    hi = len(xs)
    while lo < hi:
        mid = (lo + hi) // 2
        if xs[mid] == x:
            return mid
        elif xs[mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return -1
""", ([1, 3, 5, 9], 5), ([1, 3, 5, 9], 4)),
    program("bubble_sort", """
def f(xs: List[int]):
    n = len(xs)
    for i in range(n):
        for j in range(n - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs
""", ([3, 1, 2, 9, 0],)),
    program("chained_assignment", "def f(n: int):\n    a = b = n + 1\n    return a, b\n", (1,)),
    program("chained_list_alias", "def f(n: int):\n    a = b = [n]\n    a.append(2)\n    return b\n", (1,)),
    program("return_in_both_branches_of_loop", """
def f(xs: List[int]):
    for x in xs:
        if x > 0:
            return "pos"
        else:
            return "neg"
    return "none"
""", ([1],), ([-1],), ([],)),
    program("continue_in_while", """
def f(n: int):
    i = 0
    t = 0
    while i < n:
        i += 1
        if i == 2:
            continue
        t += i
    return t
""", (5,)),
    program("loop_return_optional", """
def f(xs: List[int], k: int) -> Optional[int]:
    for i, x in enumerate(xs):
        if x == k:
            return i
    return None
""", ([1, 2], 2), ([1, 2], 5)),
    program("set_grad_enabled", "def f(x: Tensor):\n    torch.set_grad_enabled(False)\n    a = torch.is_grad_enabled()\n    torch.set_grad_enabled(True)\n    return x * 2, a\n", (X,)),
    program("autocast_off", "def f(x: Tensor):\n    with torch.autocast('cpu', enabled=False), torch.cuda.amp.autocast(enabled=False):\n        y = x * 2\n    with torch.autocast('cuda', None, False):\n        y = y + 1\n    return y\n", (X,)),
]
