"""Snippets: modules: attributes, constants, submodules, containers, hooks, exported and unused methods, interfaces."""

from tests.frontend.language import Snippet, array, program

X = array([[1.0, -2.0], [3.0, 4.0]])

SCALE = """
class Scale(torch.nn.Module):
    def __init__(self, k: float):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.k = k

    def forward(self, x):
        return x * self.weight * self.k

class Shift(torch.nn.Module):
    def __init__(self, k: int):
        super().__init__()
        self.k = k

    def forward(self, x: Tensor) -> Tensor:
        return x + self.k
"""


def module(name: str, init: str, body: str, *inputs: tuple, extra: str = "", top: str = "", header: str = "x: Tensor",
           after: str = "") -> Snippet:  # fmt: skip
    """A snippet that scripts one module: the lines of ``__init__`` and ``forward``, further methods, class lines."""
    lines = "".join(f"        {line}\n" for line in init.strip().split("\n") if line.strip())
    steps = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    text = (
        f"{SCALE}{top}\nclass M(torch.nn.Module):\n{extra}\n    def __init__(self):\n        super().__init__()\n{lines}"
        f"\n    def forward(self, {header}):\n{steps}\nf = M()\n{after}"
    )
    return program(name, text, *(inputs or ((X,),)))


SNIPPETS = [
    module("module_parameter", "self.w = torch.nn.Parameter(torch.ones(2))", "return x @ self.w"),
    module("module_buffer", "self.register_buffer('b', torch.tensor([1.0, 2.0]))", "return x + self.b"),
    module("module_none_parameter", "self.register_parameter('bias', None)", "if self.bias is not None:\n    x = x + self.bias\nreturn x"),
    module("module_attributes", "self.i = 3\nself.s = 'a'\nself.t = (1, 2.5)\nself.l = [1, 2]\nself.d = {'a': 1}\nself.b = True\nself.n = None\nself.g = 0.5", "return x * self.i, self.s, self.t, self.l, self.d, self.b, self.n is None, self.g"),
    module("module_state", "self.count = 0", "self.count += 1\nreturn self.count", (X,), (X,), (X,)),
    module("module_buffer_state", "self.register_buffer('total', torch.zeros(2, 2))", "self.total = self.total + x\nself.total += 1\nreturn self.total", (X,), (X,)),
    module("module_list_state", "self.log = torch.jit.annotate(List[int], [0])", "self.log.append(len(self.log))\nreturn self.log", (X,), (X,)),
    module("module_empty_list", "self.log = []", "return len(self.log)"),
    module("module_empty_list_annotated", "self.log = []", "self.log.append(1)\nreturn self.log", extra="    log: List[int]\n"),
    module("module_optional_attribute", "self.cache = None", "c = self.cache\nif c is not None:\n    return c\nself.cache = x\nreturn x * 2", (X,), (X + 1,), extra="    cache: Optional[Tensor]\n"),
    module("module_jit_attribute", "self.d = torch.jit.Attribute({}, Dict[str, int])", "self.d['a'] = 5\nreturn self.d"),
    module("module_constants", "self.k = 3\nself.names = ('a', 'b')", "if self.k == 3:\n    return x * self.k, self.names[0]\nreturn x, 'c'", extra="    __constants__ = ['k', 'names']\n"),
    module("module_final", "self.k = 3", "y = x\nfor i in range(self.k):\n    y = y + i\nreturn y", extra="    k: Final[int]\n"),
    module("module_final_jit", "self.flag = True", "if self.flag:\n    return x\nelse:\n    return undefined_name", extra="    flag: torch.jit.Final[bool]\n"),
    module("module_constant_assigned", "self.k = 3", "self.k = 4\nreturn x", extra="    __constants__ = ['k']\n"),
    module("module_training", "pass", "if self.training:\n    return x\nreturn -x"),
    module("module_eval", "pass", "if self.training:\n    return x\nreturn -x", after="f.eval()\n"),
    module("module_submodule", "self.a = Scale(2.0)\nself.b = Shift(3)", "return self.b(self.a(x)), self.a.k, self.b.forward(x)"),
    module("module_submodule_parameter", "self.a = Scale(2.0)", "return self.a.weight + x"),
    module("module_submodule_none", "self.a = None", "if self.a is not None:\n    x = self.a(x)\nreturn x"),
    module("module_submodule_missing", "self.a = Scale(2.0)", "return self.nope(x)"),
    module("module_attribute_missing", "pass", "return self.nope + x"),
    module("module_attribute_new", "pass", "self.nope = 1\nreturn x"),
    module("module_attribute_wrong_type", "self.k = 1", "self.k = 'a'\nreturn x"),
    module("module_attribute_unscriptable", "self.k = {1, 2}", "return x"),
    module("module_attribute_unscriptable_used", "self.k = {1, 2}", "return len(self.k)"),
    module("module_list_loop", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3), Scale(0.5)])", "for layer in self.layers:\n    x = layer(x)\nreturn x, len(self.layers)"),
    module("module_list_enumerate", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3)])", "t = 0\nfor i, layer in enumerate(self.layers):\n    x = layer(x) + i\n    t += i\nreturn x, t"),
    module("module_list_zip", "self.a = torch.nn.ModuleList([Scale(2.0), Shift(3)])\nself.b = torch.nn.ModuleList([Shift(1), Shift(2)])", "for a, b in zip(self.a, self.b):\n    x = a(x) + b(x)\nreturn x"),
    module("module_list_index", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3)])", "return self.layers[0](x), self.layers[-1](x)"),
    module("module_list_index_dynamic", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3)])", "i = x.dim() - 1\nreturn self.layers[i](x)"),
    module("module_list_index_range", "self.layers = torch.nn.ModuleList([Scale(2.0)])", "return self.layers[4](x)"),
    module("module_list_comprehension", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3)])", "return [layer(x) for layer in self.layers]"),
    module("module_list_break", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3)])", "for layer in self.layers:\n    if x.dim() == 2:\n        break\n    x = layer(x)\nreturn x"),
    module("module_list_return", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3), Shift(5)])", "for layer in self.layers:\n    x = layer(x)\n    if bool(x.sum() > 14):\n        return x\nreturn -x"),
    module("module_list_zip_list", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3)])", "for layer, k in zip(self.layers, [1, 2]):\n    x = layer(x) * k\nreturn x"),
    module("module_dict_items", "self.m = torch.nn.ModuleDict({'a': Scale(2.0), 'b': Shift(3)})", "out: Dict[str, Tensor] = {}\nfor k, m in self.m.items():\n    out[k] = m(x)\nreturn out"),
    module("module_dict_keys", "self.m = torch.nn.ModuleDict({'a': Scale(2.0), 'b': Shift(3)})", "names: List[str] = []\nfor k in self.m.keys():\n    names.append(k)\nfor m in self.m.values():\n    x = m(x)\nreturn names, x, len(self.m)"),
    module("module_dict_index", "self.m = torch.nn.ModuleDict({'a': Scale(2.0), 'b': Shift(3)})", "return self.m['a'](x), self.m['b'](x)"),
    module("module_dict_index_missing", "self.m = torch.nn.ModuleDict({'a': Scale(2.0)})", "return self.m['q'](x)"),
    module("module_sequential", "self.s = torch.nn.Sequential(Scale(2.0), Shift(3))", "return self.s(x), self.s[1](x), len(self.s)"),
    module("module_sequential_loop", "self.s = torch.nn.Sequential(Scale(2.0), torch.nn.Sequential(Shift(3), Shift(1)))", "for m in self.s:\n    x = m(x)\nreturn x"),
    module("module_parameter_list", "self.p = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.zeros(2))])", "for p in self.p:\n    x = x + p\nreturn x"),
    module("module_method", "self.k = 2", "return self.helper(x, 3) + self.helper(x)", extra="    def helper(self, x: Tensor, n: int = 1) -> Tensor:\n        return x * n + self.k\n"),
    module("module_method_inferred", "self.k = 2", "a, b = self.helper(x)\nreturn a * b", extra="    def helper(self, x):\n        return x, self.k\n"),
    module("module_method_recursive", "self.k = 2", "return self.helper(3)", header="x: int", extra="    def helper(self, n: int) -> int:\n        return self.helper(n - 1) if n > 0 else 0\n"),
    module("module_static_method", "self.k = 2", "return self.helper(x) + M.helper(x)", extra="    @staticmethod\n    def helper(x: Tensor) -> Tensor:\n        return x * 2\n"),
    module("module_property", "self.k = 2", "self.double = 10\nreturn self.double, self.k", extra="    @property\n    def double(self) -> int:\n        return self.k * 2\n    @double.setter\n    def double(self, v: int) -> None:\n        self.k = v // 2\n"),
    module("module_unused_property", "self.k = 2", "return x", extra="    __jit_unused_properties__ = ['weird']\n    @property\n    def weird(self):\n        return [y for y in {1, 2} if y]\n"),
    module("module_unused_method", "self.k = 2", "if self.k > 100:\n    return self.python(x)\nreturn x", extra="    @torch.jit.unused\n    def python(self, x: Tensor) -> Tensor:\n        return {1, 2}\n"),
    module("module_unused_method_called", "self.k = 2", "return self.python(x)", extra="    @torch.jit.unused\n    def python(self, x: Tensor) -> Tensor:\n        return {1, 2}\n"),
    module("module_ignored_drop", "self.k = 2", "if self.k > 100:\n    return self.python(x)\nreturn x", extra="    @torch.jit.ignore(drop=True)\n    def python(self, x: Tensor) -> Tensor:\n        return {1, 2}\n"),
    module("module_uncalled_method", "self.k = 2", "return x", extra="    def never(self):\n        return {y for y in 5}\n"),
    module("module_exported_bad", "self.k = 2", "return x", extra="    @torch.jit.export\n    def never(self):\n        return {y for y in 5}\n"),
    module("module_exported", "self.k = 2", "return x", extra="    @torch.jit.export\n    def twice(self, x: int) -> int:\n        return x * self.k\n"),
    module("module_hooks", "self.inner = Shift(1)", "return self.inner(x)", top="\ndef pre(self, inputs: Tuple[Tensor]) -> Tuple[Tensor]:\n    return (inputs[0] * 10,)\ndef post(self, inputs: Tuple[Tensor], output: Tensor) -> Tensor:\n    return output - inputs[0]\n", after="f.inner.register_forward_pre_hook(pre)\nf.inner.register_forward_hook(post)\n"),
    module("module_hooks_outer", "self.k = 1", "return x + self.k", top="\ndef pre(self, inputs: Tuple[Tensor]) -> Tuple[Tensor]:\n    return (inputs[0] * 10,)\ndef post(self, inputs: Tuple[Tensor], output: Tensor) -> Tensor:\n    return output - self.k\n", after="f.register_forward_pre_hook(pre)\nf.register_forward_hook(post)\n"),
    module("module_hook_none", "self.inner = Shift(1)", "return self.inner(x)", top="\ndef post(self, inputs: Tuple[Tensor], output: Tensor) -> None:\n    print('called')\n", after="f.inner.register_forward_hook(post)\n"),
    module("module_function_attribute", "self.act = torch.relu", "return self.act(x)"),
    module("module_python_function_attribute", "self.act = double", "return self.act(x)", top="\ndef double(x: Tensor) -> Tensor:\n    return x * 2\n"),
    module("module_interface", "self.a = Scale(2.0)\nself.b = Shift(3)", "return self.a.forward(x), self.b.forward(x)", top="\n@torch.jit.interface\nclass I(torch.nn.Module):\n    def forward(self, x: Tensor) -> Tensor:\n        pass\n", extra="    a: I\n    b: I\n"),
    module("module_interface_list", "self.layers = torch.nn.ModuleList([Scale(2.0), Shift(3)])", "t = x\nfor i in range(2):\n    t = t + 1\nreturn t"),
    module("module_shared", "self.a = Scale(2.0)\nself.b = self.a", "return self.a(x) + self.b(x)"),
    module("module_same_class_twice", "self.a = Scale(2.0)\nself.b = Scale(3.0)\nself.c = Shift(1)", "return self.a(x), self.b(x), self.c(x)"),
    module("module_deep", "self.s = torch.nn.ModuleDict({'x': torch.nn.ModuleList([torch.nn.Sequential(Scale(2.0), Shift(1))])})", "for m in self.s.values():\n    for n in m:\n        for o in n:\n            x = o(x)\nreturn x"),
    module("module_deep_loop", "self.s = torch.nn.ModuleList([torch.nn.ModuleList([Scale(2.0), Shift(1)]), torch.nn.ModuleList([Shift(3)])])", "for m in self.s:\n    for n in m:\n        x = n(x)\nreturn x"),
    module("module_named_children", "self.a = Scale(2.0)\nself.b = Shift(3)", "names: List[str] = []\nfor n, m in self.named_children():\n    names.append(n)\n    x = m(x)\nreturn names, x"),
    module("module_hasattr", "self.a = Scale(2.0)", "if hasattr(self, 'nope'):\n    return self.nope\nif hasattr(self, 'a'):\n    return self.a(x)\nreturn x"),
    module("module_getattr", "self.a = Scale(2.0)", "return getattr(self, 'a')(x)"),
    module("module_isinstance", "self.a = Scale(2.0)\nself.k = 1", "return isinstance(self.k, int), isinstance(x, Tensor)"),
    module("module_default_argument", "self.k = 2", "return x * k + self.k", (X,), (X, 5), header="x: Tensor, k: int = 1"),
    module("module_optional_argument", "self.k = 2", "if m is not None:\n    x = x * m\nreturn x", (X,), (X, X), header="x: Tensor, m: Optional[Tensor] = None"),
    Snippet(
        "module_inherits",
        SCALE + "\nclass Base(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = 4\n    def base(self, x: Tensor) -> Tensor:\n        return x * self.w\n    def forward(self, x: Tensor) -> Tensor:\n        return self.base(x)\nclass D(Base):\n    def base(self, x: Tensor) -> Tensor:\n        return x - self.w\nf = D()\n",
        ((X,),),
    ),
    module("module_error_in_submodule", "self.a = Bad()", "return self.a(x)", top="\nclass Bad(torch.nn.Module):\n    def forward(self, x):\n        return x + 'a'\n"),
    module("module_no_forward_submodule", "self.a = Holder()", "return self.a.get(x)", top="\nclass Holder(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.k = 3\n    def get(self, x: Tensor) -> Tensor:\n        return x * self.k\n"),
    module("module_enum_attribute", "self.c = C.B", "return self.c == C.B, self.c.value", top="\nclass C(enum.Enum):\n    A = 1\n    B = 2\n"),
    module("module_class_attribute_constant", "self.k = 2", "return x * self.k", extra="    SIZE = 3\n"),
    module("module_rnn_cell", "self.w = torch.nn.Parameter(torch.ones(2, 2))\nself.h = torch.nn.Parameter(torch.ones(2, 2))", "state = torch.zeros(2)\nout: List[Tensor] = []\nfor t in range(x.size(0)):\n    state = torch.tanh(x[t] @ self.w + state @ self.h)\n    out.append(state)\nreturn torch.stack(out), state"),
]
