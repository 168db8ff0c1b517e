"""Snippets: lists, dicts, tuples; literals, methods, comprehensions, unpacking, deletion, errors."""

from tests.frontend.language import array, expressions, program

SNIPPETS = [
    *expressions(
        "list", "xs: List[int], n: int",
        """
        xs + [n]
        xs * 2
        2 * xs
        xs[0], xs[-1]
        xs[1:], xs[:1], xs[::2], xs[-2:], xs[5:]
        xs[::-1]
        len(xs), len([n])
        n in xs, n not in xs
        xs == [1, 2, 3], xs != [n], xs < [9]
        xs.index(2), xs.count(2)
        xs.index(77)
        sorted(xs)
        sorted(xs, reverse=True)
        sum(xs), max(xs), min(xs)
        any(xs), all(xs)
        list(xs), xs.copy()
        [n, n + 1, n * 2]
        [1.0, 2.0], ['a'], [True], [[n], [1, 2]]
        [(n, 'a'), (2, 'b')]
        [x * n for x in xs]
        [str(x) for x in xs]
        [[y for y in xs] for x in xs]
        [x for x in xs if x > 1]
        [x * y for x in xs for y in xs]
        [(i, x) for i, x in enumerate(xs)]
        [x + y for x, y in zip(xs, xs)]
        {x: x * x for x in xs}
        {str(x): [x] for x in xs}
        [1, 'a']
        [1, 2.5]
        [n, None]
        []
        list(range(n)), list(range(1, n))
        list((n, n))
        list('abc')
        [*xs, n]
        xs[n]
        xs[100]
        xs.nothing()
        xs['a']
        xs - [n]
        {1, 2}
        {x for x in xs}
        (x for x in xs)
        str(xs)
        bool(xs)
        [None]
        [xs, xs][0]
        xs[len(xs) - 1]
        max([1, 2], [1, 3])
        tuple(xs)
        dict([('a', n)])
        torch.jit.annotate(List[float], [])
        torch.jit.annotate(List[Optional[int]], [n, None])
        """,
        ([1, 2, 3], 2), ([3, 1, 2], 1),
    ),
    *expressions(
        "dict", "d: Dict[str, int], k: str",
        """
        d[k]
        d['nope']
        len(d)
        k in d, 'zz' in d, 'zz' not in d
        d.get(k), d.get('zz')
        d.get('zz', 5)
        list(d.keys()), list(d.values())
        d.keys(), d.values(), d.items()
        list(d.items())
        sorted(d.keys())
        d == {'a': 1, 'b': 2}, d != d
        d.copy()
        {k: 1, 'q': 2}
        {1: 'a', 2: 'b'}
        {1.5: 'a'}
        {True: 1}
        {'a': 1, 'b': 'c'}
        {'a': 1, 2: 2}
        {'a': [1], 'b': [2, 3]}
        {'a': {'b': 1}}
        {}
        {key: v + 1 for key, v in d.items()}
        {v: key for key, v in d.items()}
        [key + str(v) for key, v in d.items()]
        {key: 1 for key in d}
        dict(d)
        dict()
        dict(a=1, b=2)
        dict([('x', 1), ('y', 2)])
        d.pop(k)
        d.setdefault('n', 9)
        d.nothing
        d[0]
        {**d}
        str(d)
        bool(d)
        {(1, 2): 3}
        """,
        ({"a": 1, "b": 2}, "a"), ({"a": 1, "b": 2}, "b"),
    ),
    *expressions(
        "tuple", "t: Tuple[int, str, float]",
        """
        t[0], t[1], t[-1]
        t[0:2], t[1:], t[:]
        len(t)
        t + (1,)
        t + t
        (t, t)[1]
        t == (1, 'a', 2.5)
        t == t
        (1,)
        ()
        (1, (2, (3, 'x')))
        t[5]
        t[t[0]]
        str(t)
        (1, 2) < (1, 3)
        (*t, 5)
        (1, 2)[0]
        1 in (1, 2)
        t * 2
        sum((1, 2, 3)), max((1, 2))
        t[::2]
        t[::-1]
        tuple([1, 2])
        """,
        ((1, "a", 2.5),),
    ),
    program("list_methods", """
def f(xs: List[int]):
    xs.append(4)
    xs.extend([5, 6])
    xs.insert(0, 9)
    a = xs.pop()
    b = xs.pop(0)
    xs.remove(2)
    xs.reverse()
    ys = xs.copy()
    ys.sort()
    zs = ys.copy()
    zs.sort(reverse=True)
    zs.clear()
    return xs, ys, zs, a, b
""", ([1, 2, 3],)),
    program("list_set", "def f(xs: List[int]):\n    xs[0] = 5\n    xs[-1] += 3\n    xs[1] *= 2\n    return xs\n", ([1, 2, 3],)),
    program("list_set_out_of_range", "def f(xs: List[int]):\n    xs[9] = 5\n    return xs\n", ([1, 2, 3],)),
    program("list_set_wrong_type", "def f(xs: List[int]):\n    xs[0] = 'a'\n    return xs\n", ([1, 2, 3],)),
    program("list_append_wrong_type", "def f(xs: List[int]):\n    xs.append('a')\n    return xs\n", ([1, 2, 3],)),
    program("list_slice_assign", "def f(xs: List[int]):\n    xs[0:2] = [7]\n    return xs\n", ([1, 2, 3],)),
    program("list_delete", "def f(xs: List[int]):\n    del xs[0]\n    return xs\n", ([1, 2, 3],)),
    program("list_delete_two", "def f(xs: List[int]):\n    del xs[0], xs[1]\n    return xs\n", ([1, 2, 3],)),
    program("list_aug", "def f(xs: List[int]):\n    ys = xs\n    ys += [4]\n    return xs\n", ([1],)),
    program("list_aug_mul", "def f(xs: List[int]):\n    xs *= 2\n    return xs\n", ([1],)),
    program("list_alias", "def f(xs: List[List[int]]):\n    a = xs[0]\n    a.append(1)\n    return xs\n", ([[0], [5]],)),
    program("list_unpack", "def f(xs: List[int]):\n    a, b = xs\n    return a - b\n", ([5, 3],), ([1, 2, 3],)),
    program("list_unpack_star", "def f(xs: List[int]):\n    a, *b = xs\n    return a\n", ([5, 3],)),
    program("list_pop_empty", "def f(xs: List[int]):\n    return xs.pop()\n", ([],), ([1],)),
    program("list_remove_missing", "def f(xs: List[int]):\n    xs.remove(9)\n    return xs\n", ([1],)),
    program("list_of_optional", "def f(xs: List[Optional[int]]):\n    return [x is None for x in xs]\n", ([1, None],)),
    program("list_annotated_empty", "def f():\n    a: List[Tuple[int, str]] = []\n    a.append((1, 'x'))\n    return a\n", ()),
    program("list_default_empty_is_tensor", "def f(x: Tensor):\n    a = []\n    a.append(x)\n    return a\n", (array([1.0]),)),
    program("list_empty_int_append", "def f(x: int):\n    a = []\n    a.append(x)\n    return a\n", (1,)),
    program("list_literal_no_widening", "def f():\n    a: List[float] = [1, 2]\n    return a\n", ()),
    program("list_annotation_mismatch", "def f():\n    a: List[str] = [1]\n    return a\n", ()),
    program("list_pep585", "def f(xs: list[int]) -> dict[str, int]:\n    return {'a': xs[0]}\n", ([3],)),
    program("tuple_pep585", "def f(t: tuple[int, str]) -> tuple[str, int]:\n    return t[1], t[0]\n", ((3, "a"),)),
    program("list_tensor", "def f(x: Tensor):\n    ys = [x, x + 1]\n    return ys[0] + ys[-1], len(ys)\n", (array([1.0]),)),
    program("list_sort_strings", "def f(xs: List[str]):\n    xs.sort()\n    return xs\n", (["b", "a"],)),
    program("list_sort_tensors", "def f(xs: List[Tensor]):\n    xs.sort()\n    return xs\n", ([array(2.0), array(1.0)],)),
    program("dict_methods", """
def f(d: Dict[str, int]):
    d["z"] = 26
    d["a"] += 5
    e = d.copy()
    e.update({"q": 1})
    p = e.pop("b")
    s = e.setdefault("new", 3)
    t = e.setdefault("a", 3)
    del e["z"]
    d2 = {"x": 1}
    d2.clear()
    return d, e, p, s, t, d2, len(d2)
""", ({"a": 1, "b": 2},)),
    program("dict_popitem", "def f(d: Dict[str, int]):\n    return d.popitem(), len(d)\n", ({"a": 1, "b": 2},)),
    program("dict_delete_missing", "def f(d: Dict[str, int]):\n    del d['q']\n    return d\n", ({"a": 1},)),
    program("dict_get_optional", "def f(d: Dict[str, int], k: str):\n    v = d.get(k)\n    if v is None:\n        return -1\n    return v + 1\n", ({"a": 1}, "a"), ({"a": 1}, "b")),
    program("dict_int_keys", "def f(d: Dict[int, str]):\n    d[5] = 'five'\n    return d, 5 in d, d[5]\n", ({1: "a"},)),
    program("dict_wrong_value", "def f(d: Dict[int, str]):\n    d[5] = 5\n    return d\n", ({1: "a"},)),
    program("dict_tensor_values", "def f(d: Dict[str, Tensor]):\n    d['sum'] = d['a'] + d['b']\n    return d\n", ({"a": array([1.0]), "b": array([2.0])},)),
    program("dict_nested", "def f(d: Dict[str, Dict[str, int]]):\n    d['a']['b'] += 1\n    return d\n", ({"a": {"b": 1}},)),
    program("dict_annotated", "def f():\n    d: Dict[str, List[int]] = {}\n    d['a'] = [1]\n    d['a'].append(2)\n    return d\n", ()),
    program("dict_annotation_mismatch", "def f():\n    d: Dict[str, int] = {'a': 'b'}\n    return d\n", ()),
    program("dict_union_values", "def f():\n    d: Dict[str, Union[int, str]] = {'a': 1, 'b': 'c'}\n    return d\n", ()),
    program("dict_optional_values", "def f(n: int):\n    d: Dict[str, Optional[int]] = {'a': n, 'b': None}\n    return d\n", (3,)),
    program("tuple_unpack", "def f(t: Tuple[int, Tuple[str, float]]):\n    a, (b, c) = t\n    return b, c, a\n", ((1, ("a", 2.5)),)),
    program("tuple_unpack_star", "def f(t: Tuple[int, str, float]):\n    a, *b = t\n    return a, b\n", ((1, "a", 2.5),)),
    program("tuple_unpack_star_first", "def f(t: Tuple[int, str, float]):\n    *a, b = t\n    return a, b\n", ((1, "a", 2.5),)),
    program("tuple_unpack_wrong", "def f(t: Tuple[int, str]):\n    a, b, c = t\n    return a\n", ((1, "a"),)),
    program("tuple_item_assign", "def f(t: Tuple[int, str]):\n    t[0] = 3\n    return t\n", ((1, "a"),)),
    program("tuple_dynamic_index", "def f(t: Tuple[int, str], i: int):\n    return t[i]\n", ((1, "a"), 0)),
    program("tuple_return_conversion", "def f(x: Tensor) -> Tuple[int, float]:\n    return x.item(), x.item()\n"),
    program("tuple_to_list_return", "def f() -> List[int]:\n    return (1, 2)\n", ()),
    program("tuple_to_list_argument", "def f(x: Tensor):\n    return x.view((2, 2)), x.reshape((1, 4))\n", (array([1.0, 2.0, 3.0, 4.0]),)),
    program("tuple_list_of", "def f(xs: List[Tuple[int, str]]):\n    return [b * a for a, b in xs]\n", ([(1, "a"), (2, "b")],)),
    program("unpack_in_for", "def f(xs: List[Tuple[int, Tuple[int, int]]]):\n    t = 0\n    for a, (b, c) in xs:\n        t += a * b * c\n    return t\n", ([(1, (2, 3)), (4, (5, 6))],)),
    program("assign_order", "def f(xs: List[int], i: int):\n    i, xs[i] = 1, 9\n    return xs, i\n", ([0, 0, 0], 2)),
    program("del_name", "def f(n: int):\n    m = n\n    del m\n    return n\n", (3,)),
    program("del_name_used", "def f(n: int):\n    m = n\n    del m\n    return m\n", (3,)),
    program("comprehension_scope", "def f(xs: List[int]):\n    x = 5\n    ys = [x * 2 for x in xs]\n    return x, ys\n", ([1, 2],)),
    program("comprehension_outer_name", "def f(xs: List[int], k: int):\n    return [x * k for x in xs]\n", ([1, 2], 3)),
    program("comprehension_tuple", "def f(t: Tuple[int, int]):\n    return [x + 1 for x in t]\n", ((1, 2),)),
    program("comprehension_ternary", "def f(xs: List[int]):\n    return [x if x > 1 else -x for x in xs]\n", ([1, 2],)),
    program("comprehension_calls", "def g(x: int) -> str:\n    return str(x * 2)\ndef f(xs: List[int]):\n    return [g(x) for x in xs]\n", ([1, 2],)),
    program("list_of_lists_build", """
def f(n: int):
    m: List[List[int]] = []
    for i in range(n):
        m.append([i * j for j in range(n)])
    m[1][1] = 100
    return m
""", (3,)),
    program("matrix_multiply", """
def f(a: List[List[float]], b: List[List[float]]):
    out: List[List[float]] = []
    for row in a:
        new: List[float] = []
        for j in range(len(b[0])):
            s = 0.0
            for k in range(len(b)):
                s += row[k] * b[k][j]
            new.append(s)
        out.append(new)
    return out
""", ([[1.0, 2.0], [3.0, 4.0]], [[5.0], [6.0]])),
    program("slice_object", "def f(x: List[int], n: int):\n    s = slice(1, n)\n    t = slice(n)\n    return x[s], x[t], x[slice(None)], x[slice(0, None, 2)], 'abcdef'[slice(1, 3)]\n", ([1, 2, 3, 4, 5], 3), ([], 0)),
    program("slice_object_of_tensor", "def f(x: Tensor, n: int):\n    s = slice(0, n)\n    y = x + 0\n    y[s] = 5.0\n    y[slice(1, None), slice(0, 1)] += 1\n    return x[s], x[:, s], x[..., slice(n)], x[slice(None, None, 2), None], y\n", (array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), 1)),
    program("slice_object_of_tuple", "def f(x: int):\n    t = (x, 'a', 2.5, x)\n    return t[slice(1, 3)], t[slice(2)]\n", (1,)),
    program("slice_object_before_loop", "def f(x: List[int]):\n    s = slice(1, 2)\n    total = 0\n    for i in range(3):\n        total += x[s][0]\n    return total\n", ([1, 2, 3],)),
]
