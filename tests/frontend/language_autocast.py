"""Snippets: contexts of torch.autocast, what is cast in them and in what they call, and which contexts are refused."""

from tests.frontend.language import array, program

X = array([[1.01, -2.0], [0.33, 4.7]])
Y = array([[0.5, 1.26], [-3.1, 2.0]])


def inside(name: str, lines: str, context: str = "torch.autocast('cpu')", before: str = "") -> object:
    """A function of two matrices that returns ``z``, set by ``lines`` inside a context."""
    body = "".join(f"        {line}\n" for line in lines.strip().splitlines())
    return program(f"autocast_{name}", f"def f(x: Tensor, y: Tensor):\n{before}    with {context}:\n{body}    return z\n", (X, Y))


SNIPPETS = [
    inside("product", "a = x @ y\nz = (a, a.dtype)"),
    inside("dtype_by_position", "z = torch.mm(x, y)", "torch.autocast('cpu', torch.float16)"),
    inside("all_keywords", "z = torch.mm(x, y)", "torch.autocast(device_type='cpu', dtype=torch.float16, enabled=True, cache_enabled=False)"),
    inside("by_amp", "z = torch.mm(x, y)", "torch.amp.autocast('cpu')"),
    inside("of_the_cpu", "z = torch.mm(x, y)", "torch.cpu.amp.autocast()"),
    inside("of_the_cpu_float16", "z = torch.mm(x, y)", "torch.cpu.amp.autocast(dtype=torch.float16)"),
    inside("of_the_cpu_off", "z = torch.mm(x, y)", "torch.cpu.amp.autocast(False)"),
    inside("of_cuda", "a = torch.mm(x, y)\nz = (a, a.to(torch.bfloat16).softmax(0))", "torch.cuda.amp.autocast()"),
    inside("for_cuda", "a = torch.mm(x, y)\nz = (a, torch.exp(a.to(torch.float16)))", "torch.autocast('cuda')"),
    inside("for_mps", "z = torch.mm(x, y)", "torch.autocast('mps')"),
    inside("to_float32", "z = torch.mm(x, y)", "torch.autocast('cpu', dtype=torch.float32)"),
    inside("named", "z = x @ y", "torch.autocast('cpu') as a"),
    inside("beside_another", "z = x @ y", "torch.autocast('cpu'), torch.no_grad()"),
    inside("computed_arguments", "z = x @ y", "torch.autocast(d, enabled=e and True)", "    d = 'c' + 'pu'\n    e = 1 > 0\n"),
    inside("kept_in_a_name", "z = x @ y", "on", "    on = torch.autocast('cpu')\n"),
    inside("nested", """
a = x @ y
with torch.autocast('cpu', enabled=False):
    b = x @ y
    c = a + 1
d = x @ y
with torch.autocast('cpu', dtype=torch.float16):
    e = x @ y
with torch.autocast('cuda'):
    g = x @ y
z = [a, b, c, d, e, g]
"""),
    inside("to_full", """
a = x @ y
z = [torch.exp(a), torch.nn.functional.gelu(a), a.pow(2), a ** 2, 2 ** a, a.cumsum(0), a.prod(), a.log_softmax(0),
     torch.logsumexp(a, 0), torch.nn.functional.layer_norm(a, [2]), torch.dist(a, x), a.reciprocal(), torch.rsqrt(x)]
"""),
    inside("not_cast", """
a = x @ y
z = [a.softmax(0), torch.relu(a), a.tanh(), a.sigmoid(), a.sqrt(), a.mean(), a.norm(), -a, a.abs(), a % 2, a.max()]
"""),
    inside("names_a_dtype", "a = x @ y\nz = [a.sum(), a.sum(dtype=torch.bfloat16), a.log_softmax(0, dtype=torch.float16)]"),
    inside("widest", "a = x @ y\nz = [a + x, a + a, a * 2, 2 - a, a / 2, torch.addcmul(a, a, x), torch.dot(a[0], a[1]), torch.atan2(a, a)]"),
    inside("joined", "a = x @ y\nz = [torch.cat([a, x]), torch.stack([a, a])]"),
    inside("reduced", """
a = torch.addmm(x, x, y).dtype
b = torch.bmm(x[None], y[None])
c = torch.nn.functional.linear(x, y, x[0])
d = torch.mv(x, y[0])
e = torch.prelu(x, y[0, :1])
g = torch.conv1d(x[None], y[:, :, None])
h = torch.baddbmm(x[None], x[None], y[None]).dtype
i = torch.einsum('ij,jk->ik', x, y)
z = ([b, c, d, e, g, i], a, h)
"""),
    inside("other_dtypes", """
a = x.double() @ y.double()
i = torch.arange(2)
z = [a, torch.exp(a), torch.exp(x.to(torch.float16)), x.to(torch.float16) @ y.to(torch.float16), i + 1, i * x, i.sum()]
"""),
    inside("one_operand_twice", "z = torch.mm(x, x)"),
    inside("in_place", "z = x @ y\nz.add_(x)\nz += 1\nz.exp_()"),
    inside("views", "a = x @ y\na[0].add_(1)\nb = torch.exp(a)\nx[0] = 5\nz = [a, b, torch.exp(x), x]"),
    program("autocast_branches_and_loops", """
def f(x: Tensor, y: Tensor):
    z = x
    with torch.autocast('cpu'):
        if x.sum() > 0:
            z = x @ y
        else:
            z = y @ x
        for i in range(2):
            z = z @ y
    return z, x @ y
""", (X, Y)),
    program("autocast_in_a_loop", """
def f(x: Tensor, y: Tensor):
    z = x
    for i in range(5):
        with torch.autocast('cpu'):
            z = z @ y
            if i == 2:
                break
    return z, x @ y
""", (X, Y)),
    program("autocast_returns", "def f(x: Tensor, y: Tensor):\n    with torch.autocast('cpu'):\n        return x @ y\n", (X, Y)),
    program("autocast_return_in_a_loop", """
def f(x: Tensor, y: Tensor):
    z = x
    for i in range(3):
        with torch.autocast('cpu'):
            z = z @ y
            if i == 1:
                return z, x @ y
    return z, x @ y
""", (X, Y)),
    program("autocast_reaches_calls", """
def g(x: Tensor, y: Tensor):
    return torch.nn.functional.linear(x, y)

def f(x: Tensor, y: Tensor):
    with torch.autocast('cpu'):
        z = g(x, y)
    return z, g(x, y)
""", (X, Y)),
    program("autocast_in_what_is_called", """
def g(x: Tensor, y: Tensor):
    with torch.autocast('cpu'):
        return x @ y

def f(x: Tensor, y: Tensor):
    return g(x, y), x @ y
""", (X, Y)),
    program("autocast_in_a_class", """
@torch.jit.script
class A:
    def __init__(self, y: Tensor):
        self.y = y

    def go(self, x: Tensor):
        with torch.autocast('cpu'):
            return x @ self.y

def f(x: Tensor, y: Tensor):
    a = A(y)
    return a.go(x), a.go(x) + 1
""", (X, Y)),
    program("autocast_around_a_fork", """
def g(x: Tensor, y: Tensor):
    return x @ y

def f(x: Tensor, y: Tensor):
    with torch.autocast('cpu'):
        return torch.jit.wait(torch.jit.fork(g, x, y))
""", (X, Y)),
    program("autocast_in_a_fork", """
def g(x: Tensor, y: Tensor):
    with torch.autocast('cpu'):
        return x @ y

def f(x: Tensor, y: Tensor):
    return torch.jit.wait(torch.jit.fork(g, x, y)), x @ y
""", (X, Y)),
    program("autocast_twice_entered", """
def f(x: Tensor, y: Tensor):
    on = torch.autocast('cpu')
    with on:
        a = x @ y
    b = x @ y
    with on:
        c = x @ y
    return a, b, c
""", (X, Y)),
    program("autocast_raises", """
def f(x: Tensor, y: Tensor):
    with torch.autocast('cpu'):
        if x.sum() > 0:
            raise ValueError("no")
        z = x @ y
    return z
""", (X, Y), (-X, Y)),
    inside("unknown_switch", "z = x @ y", "torch.autocast('cpu', enabled=bool(x.sum() > 0))"),
    inside("unknown_context", "z = x @ y", "on if bool(x.sum() > 0) else off", "    on = torch.autocast('cpu')\n    off = torch.autocast('cpu', enabled=False)\n"),
    inside("other_device", "z = x @ y", "torch.autocast('xpu')"),
    inside("unsafe_loss", "z = torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid())"),
    inside("safe_loss", "z = torch.nn.functional.binary_cross_entropy_with_logits(x @ y, y.sigmoid())"),
    inside("unsafe_loss_while_off", "z = torch.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid())", "torch.autocast('cpu', enabled=False)"),
]
