"""The demo: a GPT-style transformer block in plain NumPy, over the bytes of a text file.

In:  a text file. Out: a table of all strategies, and a page that says why.

The program below is plain NumPy. It runs without ``minisitch``, which traces it unchanged. The
model has one block, since more would be equal and compile once, and no training.
"""

import re
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TextIO

import numpy as np

from ..errors.nearest import UsageError
from ..errors.progress import working
from ..fuse import count
from . import Comparison, Report, compare, explain
from .compare import duration
from .compare import size as in_bytes
from .draw import bars
from .page import page

BASELINES = ("none", "xla")
SEQUENCE, BATCH, HIDDEN, HEADS, VOCABULARY = 256, 4, 256, 4, 256

Weights = dict[str, np.ndarray]


# ---------------------------------------------------------------- the program
def layernorm(x, scale, shift):
    """Rows with mean 0 and variance 1, then scaled and shifted."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * scale + shift


def softmax(x):
    """Rows of positive numbers that add up to 1."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def gelu(x):
    """The Gaussian error linear unit, in its tanh form."""
    return 0.5 * x * (1.0 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def attention(x, weights, heads=HEADS):
    """Multi-head attention in which no position sees a later one."""
    batch, length, hidden = x.shape
    joint = x @ weights["qkv"] + weights["qkv_bias"]
    q, k, v = (part.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)
               for part in np.split(joint, 3, axis=-1))
    scores = q @ k.transpose(0, 1, 3, 2) * (hidden // heads) ** -0.5
    position = np.arange(length)
    scores = np.where(position[:, None] >= position, scores, -1e9)
    mixed = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(batch, length, hidden)
    return mixed @ weights["out"] + weights["out_bias"]


def gpt(tokens, targets, weights):
    """Logits of the next byte at every position, and their mean cross-entropy."""
    x = weights["embedding"][tokens] + weights["positions"]
    x = x + attention(layernorm(x, weights["scale1"], weights["shift1"]), weights)
    up = layernorm(x, weights["scale2"], weights["shift2"]) @ weights["up"] + weights["up_bias"]
    x = x + gelu(up) @ weights["down"] + weights["down_bias"]
    logits = layernorm(x, weights["scale3"], weights["shift3"]) @ weights["embedding"].T
    shifted = logits - np.max(logits, axis=-1, keepdims=True)
    log_sum = np.log(np.sum(np.exp(shifted), axis=-1))
    chosen = np.take_along_axis(shifted, targets[..., None], axis=-1)[..., 0]
    return {"logits": logits, "loss": np.mean(log_sum - chosen)}


def make_weights(hidden: int = HIDDEN, length: int = SEQUENCE, vocabulary: int = VOCABULARY, seed: int = 0) -> Weights:
    """Random float32 weights, initialised as in GPT-2."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(0.0, 0.02, shape).astype(np.float32)

    norms = {f"{name}{i}": np.full(hidden, value, np.float32) for i in (1, 2, 3) for name, value in
             (("scale", 1.0), ("shift", 0.0))}
    return {"embedding": normal(vocabulary, hidden), "positions": normal(length, hidden), **norms,
            "qkv": normal(hidden, 3 * hidden), "qkv_bias": np.zeros(3 * hidden, np.float32),
            "out": normal(hidden, hidden), "out_bias": np.zeros(hidden, np.float32),
            "up": normal(hidden, 4 * hidden), "up_bias": np.zeros(4 * hidden, np.float32),
            "down": normal(4 * hidden, hidden), "down_bias": np.zeros(hidden, np.float32)}


def make_batch(text: bytes, batch: int = BATCH, length: int = SEQUENCE) -> tuple[np.ndarray, np.ndarray]:
    """Windows of the text, evenly spread, and the byte after each. A short text is repeated."""
    if not text:
        raise ValueError("the text is empty")
    stream = np.frombuffer(text, np.uint8).astype(np.int64)
    stream = np.tile(stream, -(-(batch * length + 1) // stream.size))
    starts = np.linspace(0, stream.size - length - 1, batch).astype(np.int64)
    tokens = np.stack([stream[s:s + length] for s in starts])
    targets = np.stack([stream[s + 1:s + length + 1] for s in starts])
    return tokens, targets


# ---------------------------------------------------------------- running the demo
def default_text() -> tuple[str, bytes]:
    """A name and some bytes: of the licence, which stays as it is, or of this file."""
    licence = Path(__file__).resolve().parent.parent.parent / "LICENSE"
    file = licence if licence.is_file() else Path(__file__)
    return file.name, file.read_bytes()


def read_text(path: str | None) -> tuple[str, bytes]:
    """A file's name and bytes. Raises UsageError if it cannot be read, or is empty."""
    try:
        name, text = (Path(path).name, Path(path).read_bytes()) if path else default_text()
    except OSError as problem:
        raise UsageError(f"cannot use {path}: {problem}; name a text file that holds some bytes") from None
    if not text:
        raise UsageError(f"cannot use {path}: the text is empty; name a text file that holds some bytes")
    return name, text


def demo(path: str | None = None, report: str | None = None, target: str = "cpu", out: TextIO | None = None,
         size: tuple[int, int, int] = (BATCH, SEQUENCE, HIDDEN), strategies: Sequence[str] | None = None) -> Path:
    """Run the block under every strategy on a file's bytes, print the results, write a page.

    ``size``: the number of texts, their length, and the width of the hidden layers. Returns the
    page's path. Raises UsageError if the file cannot be read, or the page not written.
    """
    out, began, (batch, length, hidden) = out or sys.stdout, time.perf_counter(), size
    name, text = read_text(path)
    tokens, targets = make_batch(text, batch, length)
    if not Path(report or ".").absolute().parent.is_dir():
        raise UsageError(f"the folder of {report} does not exist; choose another place with "
                         "--report PATH")
    weights = make_weights(hidden, length)
    print(f"A GPT block in plain NumPy over {tokens.size} bytes of {name}: {batch} x {length} "
          f"bytes, hidden {hidden}, {HEADS} heads, float32.\n", file=out)
    with working("demo"):
        found = compare(gpt, tokens, targets, weights, target=target, strategies=strategies)
    print(found, end="\n\n", file=out)
    # ``auto`` is explained even if another is faster, so that all runs tell the same.
    best = min(found.rows, key=lambda row: (row.strategy != "auto", row.modelled_us)).strategy
    told = story(found, best)
    print(*told, sep="\n", end="\n\n", file=out)
    written = write_report(found, told, explain(gpt, tokens, targets, weights, strategy=best, target=target), report)
    print(f"The whole story of {best}, kernel by kernel: {written}\n({time.perf_counter() - began:.1f} s)", file=out)
    return written


def story(found: Comparison, best: str) -> list[str]:
    """What a strategy gained over each baseline: kernels, bytes, and time if it was undisturbed."""
    mine, told = found[best], []
    bytes_of = {row.strategy: in_bytes(row.bytes_read + row.bytes_written) for row in found.rows}
    for row in found.rows:
        if row.strategy in BASELINES and row.strategy != best:
            kernels = f"{count(mine.kernels, 'kernel')} instead of {row.kernels}"
            traffic = f"{bytes_of[best]} instead of {bytes_of[row.strategy]} through memory"
            told.append(f"{best} against {row.strategy}: {kernels}, {traffic}")
            if mine.measured_us and not found.unrest:
                told[-1] += f", {duration(mine.measured_us)} instead of {duration(row.measured_us)}"
    return told


def slug(heading: str) -> str:
    """A heading as the name of a place in a page."""
    return re.sub(r"\W+", "-", heading.lower())


def write_report(found: Comparison, told: Sequence[str], best: Report, path: str | None) -> Path:
    """Write the table, what was gained, and the report as one page."""
    target = Path(path or "minisitch-demo.html").absolute()
    shown = ("<h1>minisitch: one program, every strategy</h1><p>This page shows a GPT block, written in plain NumPy, as each "
             f"strategy compiles it, and then every kernel of {best.stages.plan.strategy} with the reason for it.</p>")
    table = "".join(f'<div class="scroll">{each}</div>' for each in (bars(found), found._repr_html_()))
    table = f"<h2>What each strategy moves</h2>{table}"
    gains = "".join(f"<p>{escape(line)}</p>" for line in told)
    whole = "".join([table, gains, best.body])
    headings = re.findall("<h2>(.*?)</h2>", whole)
    for heading in headings:
        whole = whole.replace(f"<h2>{heading}</h2>", f'<h2 id="{slug(heading)}">{heading}</h2>', 1)
    contents = "".join(f'<li><a href="#{slug(heading)}">{heading}</a></li>' for heading in headings)
    try:
        target.write_text(page("minisitch demo", [shown, f"<ol>{contents}</ol>", whole]), encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"cannot write the page: {problem}; choose another place with --report PATH") from None
    return target
