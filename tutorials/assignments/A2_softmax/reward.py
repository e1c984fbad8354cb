"""After passing: your kernel beside the compiler's, on the same rows."""

import numpy as np

import minisitch as ms
from minisitch import simt
from minisitch.course import KernelLaunch

FORMS = {
    "weights": lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True),
    "logs": lambda x: x - x.max(1, keepdims=True) - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)),
}
ROWS = np.linspace(-4, 4, 6 * 320, dtype=np.float32).reshape(6, 320)


def reward(ask, variant):
    """A table: what both kernels count."""
    outputs = np.zeros_like(ROWS)
    yours = ask("softmax", KernelLaunch({"x": ROWS, "y": outputs}, len(ROWS), 64, 0, ("x",), ("y",))).traffic
    (source,) = ms.lower(FORMS[variant], "f32[6,320]", strategy="astitch", target="cuda", device="v100", passes=())
    kernel = source.kernel
    its = simt.step(source.text, [ROWS.ravel(), outputs.ravel()], kernel.grid, kernel.block)
    rows = [("", "yours", "the compiler's")]
    for name in ("loads", "stores", "bytes_loaded", "shared_loads", "shared_stores", "shuffles", "block_barriers_each"):
        rows.append((name.replace("_", " "), f"{getattr(yours, name):,}", f"{getattr(its, name):,}"))
    table = "\n".join(f"  {name:<20}{mine:>9}{other:>16}" for name, mine, other in rows)
    return f"Your kernel beside the compiler's ({kernel.grid} blocks of {kernel.block} threads), 6 rows of 320:\n{table}"
