"""Snippets: strings, formatting, printing."""

from tests.frontend.language import expressions, program

SNIPPETS = [
    *expressions(
        "str", "s: str, n: int",
        """
        s + '!'
        s * 2
        s[0], s[-1], s[1:3], s[:2], s[2:], s[:-1]
        s[::2]
        len(s)
        s.upper(), s.lower(), s.capitalize(), s.title(), s.swapcase()
        s.find('l'), s.rfind('l'), s.find('zz'), s.count('l')
        s.index('l')
        s.rindex('l')
        s.split(), s.split('l'), s.rsplit('l', 1), s.split('l', 1)
        s.splitlines(), 'a\\nb'.splitlines()
        s.partition('l'), s.rpartition('l')
        s.replace('l', 'L'), s.replace('l', '', 1)
        s.startswith('He'), s.endswith('o'), s.startswith('x')
        s.strip(), s.lstrip('H'), s.rstrip('o')
        s.center(9, '*'), s.ljust(8, '.'), s.rjust(8)
        s.zfill(8), '7'.zfill(3)
        s.expandtabs(), 'a\\tb'.expandtabs(4)
        s.isalpha(), s.isdigit(), s.isalnum(), s.isspace(), s.isupper(), s.islower()
        s.istitle(), s.isidentifier(), s.isprintable(), s.isnumeric(), s.isdecimal()
        '-'.join([s, 'x', s])
        '-'.join(s.split('l'))
        s == 'Hello', s != 'x', s < 'a', s > 'A', s <= s, s >= 'Z'
        'l' in s, 'x' not in s
        s in ['Hello', 'x']
        f'{s}-{n}', f'{n}', f'a{{b}}'
        f'{n:03d}'
        f'{s!r}'
        '{} {}'.format(s, n), '{}'.format([n, n])
        '{:>5}'.format(s)
        '%s has %d' % (s, n), '%s' % s, '%f' % 1.5, '%d%%' % n
        '%x' % n
        '%s %s' % s
        str((n, s, 1.5)), str([n]), str([s])
        str({'a': n}), str(None), str(True)
        list(s), sorted(list(s))
        ord(s[0]), chr(n + 65)
        s.casefold()
        s.encode()
        s and 'x'
        bool(s), not s
        'a' 'b' + s
        "it's", 'say "hi"', 'tab\\t|', '\\\\'
        'über→', len('über'), 'über'.upper()
        hash(s) == hash(s)
        s + n
        s - 'x'
        s[10]
        -s
        max(s)
        reversed(s)
        s if n > 2 else 'other'
        """,
        ("Hello", 3), ("wo rld", 1),
    ),
    program("print_values", """
def f(x: int, s: str):
    print(x, s, 1.5, True, None)
    print([x, 2], (x, "a"), {"k": 1.0})
    print()
    print(f"{x}", str(x) + s)
    return x
""", (3, "q")),
    program("print_tensor", "def f(x: Tensor):\n    print(x.size(), x.dim())\n    return 1\n"),
    program("print_keyword", "def f(x: int):\n    print(x, end='')\n    return 1\n", (1,)),
    program("string_loop", """
def f(s: str):
    out: List[str] = []
    for c in s:
        if c == "l":
            continue
        out.append(c.upper())
    return out, "".join(out)
""", ("hello",), ("",)),
    program("string_enumerate", """
def f(s: str):
    total = 0
    for i, c in enumerate(s):
        total += i * ord(c)
    return total
""", ("hello",)),
    program("string_dict_count", """
def f(s: str):
    counts: Dict[str, int] = {}
    for c in s:
        if c in counts:
            counts[c] += 1
        else:
            counts[c] = 1
    return counts
""", ("abracadabra",)),
    program("string_comprehension", "def f(s: str):\n    return [c + c for c in s]\n", ("abc",)),
    program("string_aug", "def f(s: str):\n    s += 'x'\n    s += s\n    return s\n", ("ab",)),
    program("multiline", "def f():\n    return '''a\n  b'''\n", ()),
    program("docstring", 'def f(x: int):\n    """Nothing."""\n    return x\n', (1,)),
    program("format_many", "def f(a: int, b: float, c: bool):\n    return '{}|{}|{}|{}'.format(a, b, c, [a])\n",
            (1, 2.0, True)),
    program("format_too_few", "def f(a: int):\n    return '{} {}'.format(a)\n", (1,)),
    program("format_too_many", "def f(a: int):\n    return '{}'.format(a, a)\n", (1,)),
    program("fstring_expression", "def f(a: int, b: List[int]):\n    return f'{a + 1} {b[0]} {len(b)}'\n", (1, [2])),
    program("string_to_number_bad", "def f(s: str):\n    return int(s)\n", ("x",), ("5",)),
    program("string_concat_loop", """
def f(n: int):
    s = ""
    while len(s) < n:
        s = s + str(len(s))
    return s
""", (12,)),
]
