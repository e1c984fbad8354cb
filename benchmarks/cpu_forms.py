"""The programs of ``benchmarks/cpu.py`` as a user of Torch or numexpr writes them. JAX runs the NumPy text itself.

In:  a library and a program's name. Out: a function of the same arguments, or None where that library has no such form.

Torch's are also ``torch.compile``'s. A numexpr call is one expression over whole arrays; reductions between them are NumPy's,
for numexpr sums on one core and knows no maximum along an axis. What is mostly reductions has no form in numexpr.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

Forms = dict[str, Callable[..., Any]]


def torch_forms(torch: Any) -> Forms:
    """Torch's own operations where it has one, plain arithmetic elsewhere."""
    functional = torch.nn.functional

    def softmax(x):
        return torch.softmax(x, -1)

    def layernorm(x, scale, shift):
        return functional.layer_norm(x, x.shape[-1:], scale, shift, 1e-5)

    def rmsnorm(x, scale):
        return functional.rms_norm(x, x.shape[-1:], scale, 1e-6)

    def gelu_res_ln(x, bias, residual, scale, shift):
        return layernorm(functional.gelu(x + bias, approximate="tanh") + residual, scale, shift)

    def attn_scores(scores, mask, keep):
        return torch.softmax(scores * 0.125 + mask, -1) * (keep * 1.1111112)

    def xent_fwd_bwd(logits, labels):
        logged = torch.log_softmax(logits, -1)
        p, hit = torch.exp(logged), labels[:, None] == torch.arange(logits.shape[-1])
        return functional.nll_loss(logged, labels), torch.where(hit, p - 1, p) / len(logits)

    def layernorm_bwd(gradient, x, scale):
        mean = x.mean(-1, keepdim=True)
        r = torch.rsqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)
        return torch.ops.aten.native_layer_norm_backward(gradient, x, x.shape[-1:], mean, r, scale, scale, [True, True, True])

    def logsumexp(x):
        return torch.logsumexp(x, -1)

    def moments(gradient, m, v):
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient
        return m, v, m * 1.25 / (torch.sqrt(v * 1.5) + 1e-8)

    def adam(p, gradient, m, v):
        m, v, step = moments(gradient, m, v)
        return p - 1e-3 * (step + 0.01 * p), m, v

    def lamb(p, gradient, m, v):
        m, v, step = moments(gradient, m, v)
        step = step + 0.01 * p
        return p - 1e-3 * torch.linalg.vector_norm(p) / torch.linalg.vector_norm(step) * step, m, v

    def ew20(x, y):
        a = x * 1.5 + y
        b = torch.tanh(a)
        c = torch.exp(b * -0.5)
        d = c * a - b
        e = torch.sqrt(torch.abs(d) + 0.1)
        f = torch.tanh(e * 0.25 + c)
        g = f * f + 1
        return torch.exp(-g) * d / g + e

    def swiglu(a, b):
        return functional.silu(a) * b

    def rope(x, cos, sin):
        a, b = x.chunk(2, -1)
        cos, sin = cos[:, None, :], sin[:, None, :]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def int_mix(x):
        x = (x ^ (x >> 16)) * 73244475
        x = (x ^ (x >> 13)) * 1540483477
        return x ^ (x >> 16)

    def colsum(x):
        return x.sum(0)

    def int_rowsum(x):
        return x.sum(-1)

    def bn_infer(x, scale, shift, mean, variance):
        flat = (t.flatten() for t in (mean, variance, scale, shift))
        return torch.relu(functional.batch_norm(x, *flat, training=False, eps=1e-5))

    def bn_train(x, scale, shift):
        var, mean = torch.var_mean(x, (0, 2, 3), correction=0, keepdim=True)
        return functional.batch_norm(x, None, None, scale.flatten(), shift.flatten(), training=True, eps=1e-5), mean, var

    def variance(x):
        return torch.var(x, correction=0)

    forms = (softmax, layernorm, rmsnorm, gelu_res_ln, attn_scores, xent_fwd_bwd, layernorm_bwd, logsumexp, adam, lamb, ew20,
             swiglu, rope, int_mix, colsum, int_rowsum, bn_infer, bn_train, variance)
    return {form.__name__: form for form in forms}


def numexpr_forms(numexpr: Any) -> Forms:
    """One expression between two reductions. A number in its text would be a float64, and so would all it meets."""
    f32 = numpy.float32

    def ev(expression, **names):
        return numexpr.evaluate(expression, names)

    def softmax(x):
        e = ev("exp(x - top)", x=x, top=numpy.max(x, axis=-1, keepdims=True))
        return ev("e / total", e=e, total=numpy.sum(e, axis=-1, keepdims=True))

    def layernorm(x, scale, shift):
        c = ev("x - mean", x=x, mean=numpy.mean(x, axis=-1, keepdims=True))
        var = numpy.mean(ev("c * c", c=c), axis=-1, keepdims=True)
        return ev("c / sqrt(var + eps) * scale + shift", c=c, var=var, eps=x.dtype.type(1e-5), scale=scale, shift=shift)

    def gelu_res_ln(x, bias, residual, scale, shift):
        u = x + bias
        h = ev("half * u * (one + tanh(k * (u + c * u * u * u))) + residual", u=u, residual=residual, half=f32(0.5), one=f32(1),
               k=f32(0.7978845608028654), c=f32(0.044715))
        return layernorm(h, scale, shift)

    def attn_scores(scores, mask, keep):
        z = ev("scores * s + mask", scores=scores, s=f32(0.125), mask=mask)
        e = ev("exp(z - top)", z=z, top=numpy.max(z, axis=-1, keepdims=True))
        return ev("e / total * (keep * k)", e=e, total=numpy.sum(e, axis=-1, keepdims=True), keep=keep, k=f32(1.1111112))

    def adam(p, gradient, m, v):
        m = ev("a * m + b * g", a=f32(0.9), m=m, b=f32(0.1), g=gradient)
        v = ev("a * v + b * g * g", a=f32(0.999), v=v, b=f32(0.001), g=gradient)
        return ev("p - rate * (m * k / (sqrt(v * q) + eps) + decay * p)", p=p, rate=f32(1e-3), m=m, k=f32(1.25), v=v, q=f32(1.5),
                  eps=f32(1e-8), decay=f32(0.01)), m, v

    def ew20(x, y):
        number = x.dtype.type
        a = ev("x * k + y", x=x, k=number(1.5), y=y)
        b = ev("tanh(a)", a=a)
        c = ev("exp(b * k)", b=b, k=number(-0.5))
        d = ev("c * a - b", a=a, b=b, c=c)
        e = ev("sqrt(abs(d) + k)", d=d, k=number(0.1))
        g = ev("tanh(e * k + c) ** 2 + one", e=e, k=number(0.25), c=c, one=number(1))
        return ev("exp(-g) * d / g + e", d=d, e=e, g=g)

    def swiglu(a, b):
        return ev("a / (one + exp(-a)) * b", a=a, b=b, one=f32(1))

    def int_mix(x):
        x = ev("(x ^ (x >> 16)) * 73244475", x=x)
        x = ev("(x ^ (x >> 13)) * 1540483477", x=x)
        return ev("x ^ (x >> 16)", x=x)

    return {form.__name__: form for form in (softmax, layernorm, gelu_res_ln, attn_scores, adam, ew20, swiglu, int_mix)}
