"""Snippets: tensors in the language: operators, indexing, assignment, methods, attributes, factories."""

from tests.frontend.language import array, expressions, program

X = array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
N = array([[1, 2, 3], [4, 5, 6]], "int64")

SNIPPETS = [
    *expressions(
        "tensor", "x: Tensor, n: int",
        """
        x + 1, x - 1.5, x * n, x / 2, x + x
        n + x, n - x, n * x, 2 / x, 2.5 - x
        x // 2, x % 2
        2 ** x, x ** 2, x ** n
        -x, abs(x)
        x > 0, x >= n, x == 1, x != x, x < 2.5, x <= 0
        1 < x, 1 == x, 2 >= x
        (x > 0) & (x < 4), (x > 0) | (x < -4), ~(x > 0), (x > 0) ^ (x > 2)
        x @ x.t()
        x[0], x[-1], x[0, 1], x[n - 1]
        x[0:1], x[:, 1], x[:, 1:], x[..., 0], x[:, ::2]
        x[None], x[:, None], x[..., None], x[0, None, 1:]
        x[[0, 1]], x[:, [0, 2]], x[[0, 1], [1, 2]]
        x[x > 0], x[x[:, 0] > 2]
        x[torch.tensor([1, 0])], x[torch.tensor([1, 0]), 1:]
        x[:, torch.tensor([0])], x[1, torch.tensor([0, 2])]
        x[0][1], x[0, 1:][0]
        x[-2:, -1:]
        x[n:], x[:n, :n]
        x['a']
        x[0, 0, 0]
        x.shape, x.size(), x.size(0), x.shape[1], x.dim(), x.ndim, x.numel()
        x.dtype == torch.float32, x.dtype, x.is_cuda, x.requires_grad, x.device
        x.T, x.mT, x.t()
        x.view(3, 2), x.view(-1), x.reshape(6), x.view([3, 2]), x.view(x.size(1), -1)
        x.sum(), x.sum(0), x.sum(dim=1), x.sum(dim=1, keepdim=True), x.mean()
        x.max(), x.max(dim=0), x.max(0)[0], x.argmax(1)
        x.permute(1, 0), x.permute([1, 0]), x.transpose(0, 1)
        x.float(), x.int(), x.to(torch.float64), x.double(), x.to(dtype=torch.int32)
        x.type_as(x), x.to(x)
        x.unsqueeze(0).squeeze(0), x.expand(2, 2, 3), x.repeat(1, 2)
        x.clamp(0, 2), x.clamp(min=0), x.relu(), x.sigmoid()
        x.chunk(3, dim=1), x.split(1), x.unbind(0)
        x.split([1, 2], 1)[1], torch.split(x, 2, dim=1)
        x.item()
        x[0, 0].item(), int(x[0, 0]), float(x[0, 0]), bool(x[0, 0] > 0)
        x.add(1), x.add(x, alpha=2), torch.add(x, 1, alpha=n)
        torch.cat([x, x]), torch.cat((x, x), dim=1), torch.stack([x, x], 0)
        torch.zeros(2, 3), torch.zeros([2]), torch.ones((2, n)), torch.full((2,), 7)
        torch.zeros(2, dtype=torch.int64), torch.ones(1, device='cpu'), torch.zeros_like(x), torch.ones_like(x, dtype=torch.bool)
        torch.arange(3), torch.arange(1, 4), torch.arange(0, 1, 0.5), torch.linspace(0, 1, 3), torch.eye(2)
        torch.tensor(1), torch.tensor([1.5, 2.0]), torch.tensor([[1, 2], [3, 4]]), torch.tensor(True)
        torch.tensor(n), torch.tensor([n, n]), torch.tensor(1.5, dtype=torch.float64)
        torch.tensor([1, 2], dtype=torch.float32)
        torch.relu(x), torch.sigmoid(x), torch.exp(x), torch.clamp(x, min=-1, max=1)
        torch.where(x > 0, x, -x), torch.max(x, x * 2), torch.matmul(x, x.t())
        torch.max(x, 1), torch.sort(x, dim=1), torch.topk(x, 2)
        torch.softmax(x, 1), torch.nn.functional.softmax(x, dim=-1)
        torch.einsum('ij,kj->ik', [x, x])
        torch.sum(x, [0, 1]), torch.mean(x, 0), torch.std(x)
        torch.nothing(x)
        x.nothing()
        x.add(1, 2, 3)
        x.add('a')
        torch.add(x, x, beta=2)
        torch.zeros('a')
        x + 'a'
        x and n
        not x
        len(x), x.tolist()
        x is None, x is not None
        [row.sum() for row in x]
        torch.float32, torch.int64, torch.strided
        torch.tensor(0, dtype=torch.int32) + 1, torch.tensor(2) / 3
        torch.pi, torch.inf, -torch.inf
        torch.device('cpu'), torch.device('cuda:1').type, torch.device('cpu') == x.device
        x.is_floating_point(), torch.is_tensor(x), x.is_contiguous(), x.stride()
        x.masked_fill(x > 0, 0.0), x.index_select(1, torch.tensor([0]))
        torch.numel(x), torch.Size([1, 2])
        math.sqrt(x.size(0)), x * math.pi
        sum([x, x])
        min(x.size(0), 5), max(x.size(1), n)
        x.new_zeros(2), x.new_tensor([1.0]) if n > 5 else x.new_ones(1)
        x if bool(x.sum() > 0) else -x
        x.t().contiguous().view(-1)
        x.norm(), x.pow(2).sum().sqrt()
        x.detach(), x.clone(), x.data
        """,
        (X, 2),
    ),
    *expressions(
        "int_tensor", "x: Tensor",
        """
        x + 1, x * 2.5, x / 2, x // 2, x % 2, -x
        x & 1, x | 1, x ^ 3, ~x, x << 1, x >> 1
        x.float() / 2, x.sum(), x.float().mean()
        x == 2, x > x
        int(x[0, 0]) + 1, x[0, 0] + 1
        """,
        (N,),
    ),
    program("store_select", "def f(x: Tensor):\n    x[0] = 1\n    x[1, 2] = 7.5\n    return x\n", (X,)),
    program("store_slice", "def f(x: Tensor):\n    x[:, 1:] = 0\n    x[..., 0] = torch.tensor([8.0, 9.0])\n    return x\n", (X,)),
    program("store_tensor", "def f(x: Tensor):\n    x[0] = x[1]\n    x[:, 0] = x[:, 1] * 2\n    return x\n", (X,)),
    program("store_mask", "def f(x: Tensor):\n    x[x > 2] = 0.0\n    x[x < -1] += 10\n    return x\n", (X,)),
    program("store_index", "def f(x: Tensor):\n    x[[0, 1], [1, 2]] = -1.0\n    x[torch.tensor([0])] = 5\n    x[:, [0]] = 3\n    return x\n", (X,)),
    program("store_int_tensor", "def f(x: Tensor):\n    x[0] = 1\n    x[1, 1] = 2.7\n    return x\n", (N,)),
    program("store_all", "def f(x: Tensor):\n    x[:] = 2\n    x[...] += 1\n    return x\n", (X,)),
    program("store_bool", "def f(x: Tensor):\n    m = x > 0\n    m[0, 0] = False\n    return m\n", (X,)),
    program("store_view_aliases", "def f(x: Tensor):\n    y = x.view(-1)\n    y[0] = 100\n    z = x[1]\n    z += 1\n    return x, y, z\n", (X,)),
    program("aug_in_place_aliases", "def f(x: Tensor):\n    y = x\n    x += 1\n    x *= 2\n    x -= 0.5\n    x /= 4\n    return y\n", (X,)),
    program("aug_not_in_place", "def f(x: Tensor):\n    y = x\n    x **= 2\n    return x, y\n", (X,)),
    program("aug_bits", "def f(x: Tensor):\n    m = x > 0\n    m &= x < 4\n    m |= x < -4\n    m ^= x > 2\n    return m\n", (X,)),
    program("aug_mod", "def f(x: Tensor):\n    x %= 2\n    return x\n", (X,)),
    program("aug_select", "def f(x: Tensor):\n    x[0] += 1\n    x[:, 1] *= 2\n    x[0, 0] -= 5\n    x[[0, 1]] += 1\n    return x\n", (X,)),
    program("aug_number_tensor", "def f(x: Tensor):\n    n = 1.0\n    n += x[0, 0]\n    return n\n", (X,)),
    program("aug_int_with_tensor", "def f(x: Tensor):\n    n = 1\n    for row in x:\n        n += row.sum()\n    return n\n", (N,)),
    program("unpack_tensor", "def f(x: Tensor):\n    a, b = x\n    return a + b\n", (X,)),
    program("unpack_shape", "def f(x: Tensor):\n    b, c = x.shape\n    h, w = x.size()\n    return b * 10 + c, h, w\n", (X,)),
    program("unpack_max", "def f(x: Tensor):\n    values, indices = x.max(dim=1)\n    return values, indices\n", (X,)),
    program("unpack_split", "def f(x: Tensor):\n    a, b = torch.split(x, [1, 2], dim=1)\n    return a, b\n", (X,)),
    program("unpack_chunk", "def f(x: Tensor):\n    a, b, c = x.chunk(3, 1)\n    return a + b + c\n", (X,)),
    program("tolist_annotated", "def f(x: Tensor):\n    a: List[List[float]] = x.tolist()\n    b: List[float] = x[0].tolist()\n    return a, b\n", (X,)),
    program("tolist_annotate", "def f(x: Tensor):\n    return torch.jit.annotate(List[List[int]], x.tolist())\n", (N,)),
    program("tolist_wrong", "def f(x: Tensor):\n    a: List[int] = x.tolist()\n    return a\n", (N,)),
    program("tolist_return", "def f(x: Tensor) -> List[List[int]]:\n    return x.tolist()\n", (N,)),
    program("named_max", "def f(x: Tensor):\n    return x.max(dim=0).values, x.max(dim=0).indices\n", (X,)),
    program("shape_in_list", "def f(x: Tensor):\n    s = x.shape\n    s2 = list(s)\n    s2[0] = 1\n    return x.shape[0], s2, len(x.shape)\n", (X,)),
    program("shape_arithmetic", "def f(x: Tensor):\n    return x.view(x.shape[0] * x.shape[1] // 2, 2), x.new_zeros([x.size(0), 1])\n", (X,)),
    program("out_argument", "def f(x: Tensor):\n    y = torch.empty_like(x)\n    torch.add(x, x, out=y)\n    return y\n", (X,)),
    program("shape_mismatch", "def f(x: Tensor):\n    return x @ x\n", (X,)),
    program("index_out_of_range", "def f(x: Tensor, i: int):\n    return x[i]\n", (X, 5), (X, 1)),
    program("dtype_variable", "def f(x: Tensor):\n    d = torch.float64 if x.dim() == 2 else torch.int32\n    return x.to(d).dtype == torch.float64\n", (X,)),
    program("if_shape", "def f(x: Tensor):\n    if x.shape == [2, 3]:\n        return 1\n    if x.size(0) > 1 and x.dim() == 2:\n        return 2\n    return 3\n", (X,)),
    program("in_place_methods", "def f(x: Tensor):\n    y = x.clone()\n    y.add_(1).mul_(2)\n    y.zero_()\n    x.clamp_(min=0)\n    y.copy_(x)\n    return x, y\n", (X,)),
    program("list_of_tensors", "def f(xs: List[Tensor]):\n    total = torch.zeros_like(xs[0])\n    for x in xs:\n        total = total + x\n    return total / len(xs), torch.stack(xs).mean(0)\n", ([X, X],)),
    program("dict_of_tensors", "def f(d: Dict[str, Tensor]):\n    out: Dict[str, Tensor] = {}\n    for k, v in d.items():\n        out[k] = v * 2\n    return out\n", ({"a": X},)),
    program("power_iteration", "def f(a: Tensor, n: int):\n    v = torch.ones(a.size(0))\n    for _ in range(n):\n        v = a @ v\n        v = v / v.norm()\n    return v, (v @ (a @ v)).item()\n", (array([[2.0, 1.0], [1.0, 3.0]]), 20)),
    program("attention", """
def f(q: Tensor, k: Tensor, v: Tensor, mask: Optional[Tensor] = None):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p = scores.softmax(dim=-1)
    return torch.matmul(p, v), p
""", (X, X, X), (X, X, X, array([[1, 0], [1, 1]], "int64"))),
    program("run_length", """
def f(x: Tensor):
    out: List[Tuple[int, int]] = []
    i = 0
    while i < x.size(0):
        j = i
        while j < x.size(0) and int(x[j]) == int(x[i]):
            j += 1
        out.append((int(x[i]), j - i))
        i = j
    return out
""", (array([1, 1, 2, 2, 2, 3], "int64"),)),
    program("complex_tensor", "def f(x: Tensor):\n    z = torch.complex(x, x)\n    return z.real, z.imag, z.abs(), z * 1j\n", (X,)),
]
