"""Layers that find their weights by name in one dictionary, and add the gradients of those to another.

``dense(x, weights, "encoder/0/up")`` takes ``encoder/0/up`` and ``encoder/0/up/bias``. A backward that comes to a weight
for the second time adds to its gradient: that is how a recurrent network's steps share weights.
"""

from __future__ import annotations

from layers import layernorm, layernorm_backward, linear, linear_backward


def add_to(gradients, name, gradient):
    """Add to the gradient of a weight that may have one already."""
    gradients[name] = gradients[name] + gradient if name in gradients else gradient


def dense(x, weights, name):
    """The linear layer of this name."""
    return linear(x, weights[name], weights[f"{name}/bias"])


def dense_backward(cache, gradient, gradients, name):
    """The gradient of x."""
    x, weight, bias = linear_backward(cache, gradient)
    add_to(gradients, name, weight)
    add_to(gradients, f"{name}/bias", bias)
    return x


def normed(x, weights, name, epsilon=1e-6):
    """The layernorm of this name."""
    return layernorm(x, weights[f"{name}/scale"], weights[f"{name}/shift"], epsilon)


def normed_backward(cache, gradient, gradients, name):
    """The gradient of x."""
    x, scale, shift = layernorm_backward(cache, gradient)
    add_to(gradients, f"{name}/scale", scale)
    add_to(gradients, f"{name}/shift", shift)
    return x
