"""The demo that learns: the demo's GPT over the bytes of a text file, trained with Adam.

In:  a text file. Out: the losses on the way, what the model writes, and a page with both.

Forward, backward and update are one function, compiled as a whole. It writes the weights in place.
"""

import sys
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..errors.nearest import UsageError
from ..grad import value_and_grad
from ..runtime import jit
from .demo import Weights, gpt, make_weights, read_text
from .page import page
from .svg import PALETTE, Picture, line, path, svg, text

BATCH, LENGTH, HIDDEN, STEPS, RATE = 16, 64, 128, 300, 3e-3
ACROSS, DOWN, LEFT = 480, 240, 40  # pixels of the picture
BAR = 30  # characters


def loss(weights: Weights, tokens: np.ndarray, targets: np.ndarray) -> Any:
    """The mean cross-entropy of the next byte."""
    return gpt(tokens, targets, weights)["loss"]


def step(weights: Weights, means: Weights, squares: Weights, tokens: np.ndarray,
         targets: np.ndarray, rate: float) -> Any:
    """One step of Adam, in place. Returns the loss before it."""
    value, slopes = value_and_grad(loss)(weights, tokens, targets)
    for name, g in slopes.items():
        means[name] += 0.1 * (g - means[name])
        squares[name] += 0.01 * (g * g - squares[name])
        weights[name] -= rate * means[name] / (np.sqrt(squares[name]) + 1e-8)
    return value


def batches(words: bytes, batch: int, length: int, seed: int = 0) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Draws windows of the text, each with the byte after every byte."""
    random, stream = np.random.default_rng(seed), np.frombuffer(words, np.uint8).astype(np.int64)

    def draw() -> tuple[np.ndarray, np.ndarray]:
        starts = random.integers(0, stream.size - length, batch)
        found = stream[starts[:, None] + np.arange(length + 1)]
        return found[:, :-1].copy(), found[:, 1:].copy()
    return draw


def write(weights: Weights, begin: bytes, count: int, seed: int = 0) -> str:
    """What the model writes behind ``begin``, byte by byte."""
    random, written = np.random.default_rng(seed), list(begin)
    logits = jit(lambda tokens, weights: gpt(tokens, tokens, weights)["logits"][0],
                 strategy="astitch")
    length = len(weights["positions"])
    for _ in range(count):
        tokens = np.array([(written + [0] * length)[:length] if len(written) < length
                           else written[-length:]])
        scores = 1.5 * logits(tokens, weights)[min(len(written), length) - 1].astype(np.float64)
        likely = np.exp(scores - scores.max())
        written.append(int(random.choice(likely.size, p=likely / likely.sum())))
    return bytes(written).decode("utf-8", "replace")


def train(file: str | None = None, report: str | None = None, out: TextIO | None = None,
          size: tuple[int, int, int] = (BATCH, LENGTH, HIDDEN), steps: int = STEPS) -> list[float]:
    """Train on a file's bytes, print the loss and a sample, write a page. Returns the losses.

    ``size``: the number of texts in a step, their length, and the width of the hidden layers.
    Raises UsageError if the file cannot be read or is too short, or the page not written.
    """
    out, (batch, length, hidden) = out or sys.stdout, size
    name, words = read_text(file)
    if len(words) <= length:
        raise UsageError(f"{name} has {len(words)} bytes, and a text is {length} long; name a longer one")
    weights, draw = make_weights(hidden, length), batches(words, batch, length)
    means, squares = ({each: np.zeros_like(w) for each, w in weights.items()} for _ in range(2))
    print(f"A GPT block over the bytes of {name}: {batch} x {length} bytes a step, hidden {hidden}, "
          f"{sum(w.size for w in weights.values()):,} weights.\nForward, backward and Adam are one "
          "compiled function. Compiling it ...", file=out, flush=True)
    losses, compiled, began = [], jit(step, strategy="astitch"), 0.0  # it plans fast
    for number in range(steps):
        rate = RATE * (1 - number / steps)
        losses.append(float(compiled(weights, means, squares, *draw(), rate)))
        began = began or time.perf_counter()  # the first step compiles
        if number and (number % max(1, steps // 12) == 0 or number == steps - 1):
            fast = number * batch * length / (time.perf_counter() - began)
            bar = "#" * int(BAR * losses[-1] / losses[0])
            print(f"step {number:4}  loss {losses[-1]:6.3f}  {fast:9,.0f} bytes/s  {bar}", file=out,
                  flush=True)
    begin = words.strip()[:length // 2]
    sample = write(weights, begin, 200)
    print(f"\nIt reads {begin.decode('utf-8', 'replace')!r}, and goes on:\n\n{sample}\n", file=out)
    target = Path(report or "minisitch-train.html").absolute()
    told = f"<h1>A GPT that learned {escape(name)}</h1>{picture(losses)}<pre>{escape(sample)}</pre>"
    try:
        target.write_text(page("minisitch demo --train", [told]), encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot write the page: {problem}; choose another place with --report PATH") from None
    print(f"The loss as a picture: {target}", file=out)
    return losses


def picture(losses: list[float]) -> Picture:
    """The loss of each step."""
    top = max(losses)
    places = [(LEFT + (ACROSS - LEFT - 8) * i / max(1, len(losses) - 1),
               DOWN - 24 - (DOWN - 40) * each / top)
              for i, each in enumerate(losses)]
    drawn = [line(LEFT, DOWN - 24, ACROSS - 8, DOWN - 24), line(LEFT, 12, LEFT, DOWN - 24),
             text(LEFT - 4, 20, f"{top:.2f}", "end"), text(LEFT - 4, DOWN - 24, "0", "end"),
             text(ACROSS - 8, DOWN - 8, f"{len(losses)} steps", "end"),
             path("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in places), PALETTE[0], width=1.6)]
    return svg(ACROSS, DOWN, drawn, "the loss of each step")
