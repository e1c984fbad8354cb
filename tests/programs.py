"""Programs that many tests ask about, as a user writes them."""

import numpy as np


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layernorm(x, scale, shift):
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(np.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale + shift


def layernorm_backward(x, dy, scale):
    """The gradients of x, scale and shift: row sums and column sums of the same data."""
    mean = np.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    inverse = 1 / np.sqrt(np.mean(np.square(centred), axis=-1, keepdims=True) + 1e-5)
    normal = centred * inverse
    scaled = dy * scale
    dx = inverse * (scaled - np.mean(scaled, axis=-1, keepdims=True)
                    - normal * np.mean(scaled * normal, axis=-1, keepdims=True))
    return dx, np.sum(dy * normal, axis=0), np.sum(dy, axis=0)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) * 0.125) @ v


def batch_norm(x, scale, shift):
    """Training statistics of each channel of NCHW."""
    mean = np.mean(x, axis=(0, 2, 3), keepdims=True)
    variance = np.mean(np.square(x - mean), axis=(0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)


def softmaxes(times):
    """A function that takes the softmax again and again."""
    def repeated(x):
        for _ in range(times):
            x = softmax(x)
        return x

    return repeated


def two_rows(x):
    """Two rows are kept, one after the other: each is read backwards."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    s = e[:, ::-1] / np.sum(e, axis=-1, keepdims=True)
    t = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return t[:, ::-1] / np.sum(t, axis=-1, keepdims=True)


def standardised(x):
    """Statistics of the columns, which every row reads."""
    return (x - np.mean(x, axis=0)) / np.sqrt(np.var(x, axis=0) + 1)
