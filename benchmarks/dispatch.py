"""What it costs to hand a kernel's rows to the cores: ``crew`` and ``workers.run`` against Numba's own thread layers.

    python -m benchmarks.dispatch

For softmax kernels of about 50 us to 5 ms on one core: microseconds a call, serial and parallel, called back to
back and after the threads slept for 5 ms. Each thread layer gets a process of its own; three rounds, best and
median of 123 calls. The figures in ``docs/performance.md`` come from here.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import numpy as np

WIDTH = 1024
ROWS = {"50 us": 190, "200 us": 760, "1 ms": 3800, "5 ms": 19000}
TEXT = f"""
ZERO, ONE, NEG_INF = np.float32(0.0), np.float32(1.0), np.float32(-np.inf)
def softmax(first, last, x, y):
    for row in range(first, last):
        x_row, y_row = x[row * {WIDTH}:(row + 1) * {WIDTH}], y[row * {WIDTH}:(row + 1) * {WIDTH}]
        top = NEG_INF
        for col in range({WIDTH}):
            top = maximum(top, x_row[col])
        total = ZERO
        for col in range({WIDTH}):
            e = exp_f32(x_row[col] - top)
            y_row[col] = e
            total += e
        scale = ONE / total
        for col in range({WIDTH}):
            y_row[col] *= scale
"""


def serial_and_ours():
    from minisitch.runtime.cpu import crew, workers
    from minisitch.runtime.cpu.compile import compile_cpu

    compiled = compile_cpu(TEXT, "softmax", ("float32", "float32"))
    kernel = compiled.function
    launches = {rows: crew.launcher(compiled.address, rows, [(rows * WIDTH, 4)] * 2) for rows in ROWS.values()}
    helpers = workers.thread_count() - 1
    return {"serial": lambda rows, *a: kernel(0, rows, *a),
            "crew": lambda rows, *a: launches[rows](helpers, 4 * helpers + 4, True, *a),
            "workers": lambda rows, *a: workers.run(kernel, rows, a, work=10**9)}


def numba_layer():
    """The same body under prange, eight chunks a thread."""
    import numba

    from minisitch.runtime.cpu import compile as compiler

    namespace = {"np": np, "prange": numba.prange}
    code = compiler._for_the_compiler(TEXT, "softmax", "<dispatch>")
    namespace |= {n: compiler._helper(n) for n in compiler.names_in(code) & compiler._cpu_math_functions().keys()}
    exec(code, namespace)
    namespace["softmax"] = numba.njit(**compiler.HELPER_FLAGS)(namespace["softmax"])
    chunks = 8 * numba.get_num_threads()
    exec(f"def par(rows, x, y):\n    for c in prange({chunks}):\n"
         f"        softmax(c * rows // {chunks}, (c + 1) * rows // {chunks}, x, y)\n", namespace)
    return {numba.config.THREADING_LAYER: numba.njit(parallel=True, nogil=True, error_model="numpy")(namespace["par"])}


def measure(how, rows, pause):
    x = np.random.default_rng(0).normal(size=rows * WIDTH).astype(np.float32)
    y = np.empty_like(x)
    how(rows, x, y)
    samples = []
    for _ in range(41):
        if pause:
            time.sleep(pause)
        began = time.perf_counter()
        how(rows, x, y)
        samples.append((time.perf_counter() - began) * 1e6)
    return samples


def report(ways):
    for name, how in ways.items():
        for pause in (0.0, 0.005):
            cells = [measure(how, rows, pause) for rows in ROWS.values()]
            when = "after 5 ms" if pause else "at once"
            print(f"{name:10} {when:10} " + " ".join(f"{min(c):8.0f} {statistics.median(c):6.0f}" for c in cells),
                  flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        report(serial_and_ours() if sys.argv[1] == "ours" else numba_layer())
    else:
        print(f"{'':10} {'':10} " + " ".join(f"{n:>8} median" for n in ROWS))
        for layer in ("ours", "tbb", "omp", "workqueue") * 3:
            environment = {**os.environ, "NUMBA_THREADING_LAYER": layer if layer != "ours" else "workqueue"}
            subprocess.run([sys.executable, __file__, layer], env=environment, stderr=subprocess.DEVNULL)
