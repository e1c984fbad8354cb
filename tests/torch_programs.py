"""Small PyTorch programs, and which operators of each PyTorch runs itself.

``PROGRAMS``: name -> (function, arguments, names of the operators that fall back). Arguments are
made anew for each run. The floats among them get gradients, unless the function is in ``FORWARD``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

PROGRAMS: dict = {}
FORWARD: set[str] = set()  # programs whose results have no gradient


def program(make, *falls_back, forward=False):
    def add(function):
        PROGRAMS[function.__name__] = function, make, {*falls_back}
        if forward:
            FORWARD.add(function.__name__)
        return function
    return add


def floats(*shapes, dtype=torch.float32):
    return lambda: [torch.randn(*shape, dtype=dtype) for shape in shapes]


def values(*lists):
    return lambda: [torch.tensor(each) for each in lists]


NAN, INF = float("nan"), float("inf")


# ---------------------------------------------------------------- dtypes
@program(lambda: [torch.arange(6).reshape(2, 3), torch.randn(3)], forward=True)
def promotes(i, x):
    return i + x, i * 2, i / 4, i + 2.5, i.to(torch.int8) + i.to(torch.uint8), (i > 2) + x, (i > 2).sum(), i.sum(0)


@program(lambda: [torch.tensor([1, 2, 5]), torch.tensor(2.5), torch.tensor(3, dtype=torch.int8)], forward=True)
def compares(i, x, small):
    return i > 2.5, i == x, i <= small, x != 2.5, i >= 2


@program(lambda: [torch.randn(4), torch.tensor(0.1, dtype=torch.float64)])
def mixes_a_scalar_tensor(x, double):
    return x * double


@program(floats((3, 5), dtype=torch.float64))
def doubles(x):
    return torch.softmax(x, 1) * 1e-9 + torch.log1p(x * x)


@program(floats((4, 8), (8,), dtype=torch.float16))
def halves(x, w):
    return F.layer_norm(x, (8,), w) * 2


@program(floats((4, 4), dtype=torch.bfloat16), "mul.Tensor", "sin.default", "cos.default")
def brains(x):
    return torch.sin(x * 2)


@program(floats((4,)), "complex.default", "mul.Tensor", "view_as_real.default", forward=True)
def complexes(x):
    return (torch.complex(x, x) * torch.complex(x, 2 * x)).real


@program(values([5, 3, 12], [1, 2, 7]), forward=True)
def bits(a, b):
    return a & b, a | b, a ^ b, ~a, (a > 4) & (b > 1), a & 6


# ---------------------------------------------------------------- arithmetic
@program(values([-7.5, 7.5, 3.0, -3.0], [2.0, -2.0, 2.0, -2.0]), forward=True)
def divides(a, b):
    return a % b, torch.fmod(a, b), a // b, torch.div(a, b, rounding_mode="trunc"), a % 2, 3 - a, torch.rsub(a, b, alpha=2)


@program(values([-7, 7, 3, -3]), forward=True)
def divides_integers(i):
    return i % 3, i // 2, torch.div(i, 2, rounding_mode="trunc"), torch.fmod(i, -2)


@program(values([-7, 7], [2, 3]), "remainder.Tensor", "div.Tensor_mode", forward=True)
def divides_by_integers(i, j):
    return i % j, i // j, i * j


@program(floats((3, 4)))
def powers(x):
    y = x.abs() + 0.5
    return y ** 2, y ** 0.5, y ** -1.5, 2 ** x, y ** x, torch.rsqrt(y), y.reciprocal(), x.square()


@program(floats((40,)))
def functions(x):
    y = x.tanh() * 0.9
    return (x.exp(), x.expm1(), x.abs().log1p(), (x * x + 1).log2(), (x * x + 1).log10(), x.sin(), x.cos(), y.tan(),
            y.asin(), y.acos(), x.atan(), x.sinh(), x.cosh(), x.asinh(), (x * x + 1.5).acosh(), y.atanh(),
            torch.atan2(x, y), torch.hypot(x, y), x.erf(), torch.exp2(x), torch.logaddexp(x, y))


@program(floats((40,)))
def activations(x):
    return (F.relu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x), F.leaky_relu(x, 0.1), F.hardtanh(x),
            F.softplus(x), F.mish(x), F.logsigmoid(x), F.hardswish(x), F.selu(x), F.softsign(x), F.relu6(x))


@program(values([NAN, INF, -INF, 0.0, -0.0, -2.5, 3.5, 2.5]), forward=True)
def odd_numbers(x):
    return (x.sign(), x.isnan(), x.isinf(), torch.maximum(x, -x), x.amax(), x.clamp(-1, 1), F.relu(x), x.round(),
            torch.nan_to_num(x), x.argmax(), x > 0, x.trunc(), x.isfinite())


@program(floats((5, 7), (5, 7)))
def chooses(x, y):
    return torch.where(x > y, x, 0.0), torch.clamp(x, y - 1, y + 1), torch.lerp(x, y, 0.3), x.masked_fill(y > 0, -1.0), x.clamp_min(0.1)


# ---------------------------------------------------------------- reductions
@program(floats((3, 4, 5)))
def reduces(x):
    return (x.sum(), x.sum((0, -1)), x.mean(1, keepdim=True), x.var(), x.std(2, correction=0), x.prod(1), x.amax((0, 2)),
            torch.logsumexp(x, 1), x.norm(dim=-1), x.var((0, 1), keepdim=True), torch.var_mean(x, 1)[0])


@program(floats((4, 1), (3, 0), (4, 2)), forward=True)
def has_few_degrees_of_freedom(x, nothing, y):
    return x.var(1), x.var(1, correction=0), y.var(0, correction=9), x.std(), nothing.mean(), nothing.sum(1), nothing.prod()


@program(values([[3.0, 1.0, 3.0], [0.0, 5.0, 5.0]]))
def finds_the_largest(x):
    best, where = x.max(1)
    least, _ = x.min(0, keepdim=True)
    return best, where, least, x.argmax(), x.argmin(1), x.max()


@program(lambda: [torch.arange(12).reshape(3, 4) % 5 == 0], forward=True)
def asks(b):
    return b.any(), b.all(1), b.any(0, keepdim=True), b.sum(), b.logical_not(), b.count_nonzero()


@program(lambda: [torch.arange(12).reshape(3, 4)], forward=True)
def adds_up(i):
    return i.cumsum(1), i.to(torch.int8).cumsum(0), (i % 2 == 0).cumsum(0)


@program(floats((4, 6)), "topk.default", "sort.default")
def sorts(x):
    return x.topk(2).values * 2, x.sort(dim=1).values


# ---------------------------------------------------------------- moves
@program(floats((4, 6, 5)))
def slices(x):
    return x[1:, ::2], x[:, -1], x[..., None, 1:-1], x[-3:-1].flip(0), x.select(1, 2), x.narrow(2, 1, 3), x[:, :, 1::3]


@program(floats((4, 6), (4, 2)))
def writes(x, y):
    z = x * 1
    z[:, 1:3] = y
    z[0] = 5.0
    z[:, 4] += 1
    return z


@program(floats((4, 6)))
def reshapes(x):
    a, b = x.chunk(2, dim=1)
    return (x.view(2, 12), x.t().reshape(3, 8), torch.stack([a, b]), x.unflatten(1, (2, 3)), x.unbind(0)[2],
            x.repeat(2, 1, 3), x.expand(3, 4, 6), x.roll(1, 1), x.repeat_interleave(2, 1), a.unsqueeze(1).squeeze())


@program(lambda: [torch.randn(2, 3), torch.randn(0), torch.randn(2, 1)])
def joins(x, nothing, y):
    return torch.cat([nothing, x.reshape(-1)]), torch.cat([x, y], 1), torch.cat([nothing, nothing])


@program(floats((2, 5, 4)))
def pads(x):
    return F.pad(x, (1, 2)), F.pad(x, (-1, 1, 0, -2), value=3.0), F.pad(x, (1, 1), mode="reflect"), F.pad(x, (0, 0, 1, 0, 2, 2))


@program(floats((5, 5)), "diagonal_scatter.default")
def triangles(x):
    return x.tril(), x.triu(1), x.tril(-2), x.diagonal(), x.trace(), torch.diag(x, 1)


@program(lambda: [torch.randn(6, 4), torch.tensor([[5, 0, 2], [1, 1, -1]])])
def indexes(x, i):
    return x[i], x[:, i.clamp_min(0) % 4], x[i[0], i[1]], x[[0, 2]]


@program(lambda: [torch.randn(4, 6), torch.tensor([[5, 0, 2], [1, 1, 0], [3, 4, 5], [0, 0, 0]]), torch.randn(4, 3)])
def gathers(x, i, y):
    return (x.gather(1, i), x.index_select(1, i[0]), x.scatter(1, i, 2.0), x.scatter_add(1, i, y), torch.take_along_dim(x, i, 1),
            x.index_add(1, i[2], y), x.index_fill(0, i[3, :1], 1.0))


@program(lambda: [torch.randn(4, 6), torch.tensor([3, 0]), torch.randn(2, 6)])
def puts(x, i, y):
    z = x.clone()
    z[i] = y
    z[x > 1] = 0.0
    return z, x.index_put((i,), y, accumulate=True)


@program(lambda: [torch.randn(3, 4).t(), torch.randn(3, 1).expand(3, 4), torch.randn(8, 3)[::2]])
def takes_strided_inputs(x, wide, every_second):
    return x + 1, x @ wide, every_second * 2, (x * x).t()


@program(floats((3, 4)))
def returns_inputs(x):
    y = x * 2
    return x, x.view(4, 3), x[0], y, y.t(), y


# ---------------------------------------------------------------- networks
@program(floats((4, 6), (5, 6), (5,), (2, 5, 3)))
def multiplies(x, w, b, batch):
    return (F.linear(x, w, b), torch.addmm(b, x, w.t(), beta=0.5, alpha=2), torch.einsum("ij,bkl->bil", x[:, :5], batch),
            batch.transpose(1, 2) @ batch, x[0] @ w.t(), torch.outer(b, b), torch.baddbmm(batch, batch, batch[:, :3]))


@program(floats((4, 8, 3), (8,)), "as_strided.default")
def normalises_groups(x, w):
    return F.group_norm(x, 2, w, w)


@program(floats((4, 8, 3), (8,)))
def normalises(x, w):
    y = x.transpose(1, 2)
    return F.layer_norm(y, (8,), w, w), F.rms_norm(y, (8,), w), F.normalize(x, dim=1), F.instance_norm(x)


@program(lambda: [torch.randn(4, 6), torch.tensor([0, 5, -100, 2]), torch.rand(4, 6)])
def losses(x, target, y):
    return (F.cross_entropy(x, target), F.cross_entropy(x, y, label_smoothing=0.1), F.binary_cross_entropy_with_logits(x, y),
            F.mse_loss(x, y), F.huber_loss(x, y), F.l1_loss(x, y), F.kl_div(F.log_softmax(x, 1), y, reduction="batchmean"))


@program(lambda: [torch.randn(10, 4), torch.tensor([[1, 0], [3, 1]])], "_assert_async.msg")
def embeds(table, ids):
    return F.embedding(ids, table, padding_idx=1), F.one_hot(ids, 5)


@program(lambda: [torch.randn(2, 4, 6, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8), torch.rand(6, 6) > 0.3])
def attends(q, k, v, mask):
    mask = mask | torch.eye(6, dtype=torch.bool)
    return (F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
            F.scaled_dot_product_attention(q[:, :2], k, v, attn_mask=mask))


@program(floats((2, 4, 6, 8)))
def rotates(q):
    angle = torch.arange(6)[:, None] / 10000 ** (torch.arange(0, 8, 2) / 8)
    cos, sin = torch.cat([angle, angle], 1).cos(), torch.cat([angle, angle], 1).sin()
    return q * cos + torch.cat([-q[..., 4:], q[..., :4]], -1) * sin


@program(floats((3, 4), (3, 5), (3, 5), (20, 4), (20, 5)))
def remembers(x, h, c, w, u):
    for _ in range(3):
        i, f, g, o = (x @ w.t() + h @ u.t()).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h, c


@program(floats((2, 3, 8, 8), (4, 3, 3, 3)), "convolution.default", "convolution_backward.default",
         "max_pool2d_with_indices.default", "max_pool2d_with_indices_backward.default")
def convolves(x, w):
    return F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2) * 2, x.mean((2, 3)), F.adaptive_avg_pool2d(x, 1)


@program(floats((64, 64)), "native_dropout.default")
def drops(x):
    return F.dropout(x * 2, 0.3) + 1


@program(floats((0, 4), (3, 4)))
def holds_nothing(x, y):
    return x + 1, x.sum(0), x @ y.t(), torch.cat([x, y]), y[:0] * 2


@program(lambda: [torch.randn(3, 4)], forward=True)
def creates(x):
    return (torch.zeros_like(x), x.new_ones(2), torch.full((2, 3), 7), torch.arange(5), torch.arange(1.0, 2.0, 0.25), torch.linspace(0, 1, 5),
            torch.eye(3), torch.arange(10, 0, -3), torch.tensor([1.0, 2.0]) * 2, torch.zeros(2, dtype=torch.int32))


@program(lambda: [torch.randn(3, 3), torch.randn(3, 3)], forward=True)
def writes_to_its_arguments(x, y):
    x.add_(1)
    x[0] = y[0]
    y.t()[1].mul_(2)
    return x * y, y[:, 1]


@program(lambda: [torch.tensor([1, 100, 250], dtype=torch.uint8), torch.tensor([True, False, True])], forward=True)
def wraps_around(i, b):
    return i + 200, i * 3, i - 1, b + b, b * b, b.cumsum(0), b.max(), b.float() - 1


@program(lambda: [torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)])
def keeps_channels_last(x):
    return x * 2, x.mean(1), x.permute(0, 2, 3, 1) + 1
