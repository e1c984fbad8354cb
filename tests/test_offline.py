"""What needs no assembler: the plainer form of CUDA text, what is said without tools, and the reading of figures."""

import ast
from dataclasses import replace

import numpy as np
import pytest
from golden import FOLDER
from machine_promises import broken
from programs import softmax, standardised

import minisitch as ms
from minisitch import simt
from minisitch.errors import DeviceError
from minisitch.runtime.cuda import compile as cuda_compile
from minisitch.runtime.cuda import offline


@pytest.mark.parametrize("program", [softmax, standardised])
@pytest.mark.parametrize("shape", [(3, 70), (70, 3), (1, 300)])
@pytest.mark.parametrize("strategy", ["astitch", "fs18", "none"])
def test_the_plainer_text_computes_the_same(program, shape, strategy, rng):
    """Loops that count, unsigned indices and bounded thread numbers change no result: the stepper runs both."""
    inputs = rng.standard_normal(shape).astype(np.float32)
    for source in ms.lower(program, inputs, strategy=strategy, target="cuda"):
        kernel = source.kernel
        results = []
        for text in (source.text, ast.unparse(cuda_compile.plain(source.text, exact=False))):
            values = np.random.default_rng(1)
            arrays = {b.name: values.standard_normal(b.size).astype(b.dtype) for b in kernel.parameters}
            reads = [b.name for b in kernel.buffers if b.scope == "input"]
            simt.step(text, arrays, kernel.grid, kernel.block, inputs=reads)
            results.append(arrays)
        for name, array in results[0].items():
            np.testing.assert_array_equal(array, results[1][name])


def test_the_plainer_text_of_each_kind_of_loop():
    text = ("def k(x, y):\n    thread = cuda.threadIdx.x\n    for i in range(4):\n        for j in range(thread, y[i], 32):\n"
            "            x[j] += i\n    for step in (2, 1):\n        x[step] = 0\n")
    assert ast.unparse(cuda_compile.plain(text)) == (
        "def k(x, y):\n    thread = cuda.threadIdx.x & 1023\n    i = 0\n    while i < 4:\n        stop_1 = y[np.uint64(i)]\n"
        "        j = thread\n        while j < stop_1:\n            x[np.uint64(j)] += i\n            j += 32\n        i += 1\n"
        "    for step in (2, 1):\n        x[np.uint64(step)] = 0")


def test_no_loop_variable_is_read_after_its_loop_or_assigned_in_it():
    """What lets ``plain`` count for itself. Every loop of the golden text, and of a program under each strategy."""
    texts = [(FOLDER / "softmax_cuda.txt").read_text(encoding="utf-8")]
    texts += [s.text for strategy in ms.STRATEGIES for s in ms.lower(standardised, "f32[70,33]", strategy=strategy, target="cuda")]
    for loop in [n for text in texts for n in ast.walk(ast.parse(text)) if isinstance(n, ast.For)]:
        stored = [n.id for part in loop.body for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        assert loop.target.id not in stored and not loop.orelse
        assert not any(isinstance(n, ast.Break | ast.Continue) for part in loop.body for n in ast.walk(part))


# ---------------------------------------------------------------- without the tools
def test_machine_code_says_what_to_install(monkeypatch):
    monkeypatch.setattr(offline.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"numba-cuda is not installed: pip install 'minisitch\[offline-cuda\]'"):
        ms.lower(softmax, "f32[4,8]", target="cuda").sass()
    with pytest.raises(DeviceError, match="numba-cuda"):
        cuda_compile.ptx("def k(x):\n    x[0] = 1\n", "k", ["float32"], "sm_90")


def test_a_missing_assembler_is_named(monkeypatch):
    monkeypatch.setattr(offline.importlib.util, "find_spec", lambda name: object() if name == "numba_cuda" else None)
    monkeypatch.setattr(offline.shutil, "which", lambda name: "" if name == "ptxas" else name)
    offline._tool.cache_clear()
    with pytest.raises(DeviceError, match=r"ptxas \(package nvidia-cuda-nvcc\) not found: pip install"):
        ms.lower(softmax, "f32[4,8]", target="cuda").ptx("sm_75")
    offline._tool.cache_clear()


@pytest.mark.parametrize("target, architecture, why", [("cpu", "sm_90", "text for cpu"), ("cuda", "hopper", "take one of sm_75")])
def test_what_cannot_be_assembled_is_refused(target, architecture, why):
    with pytest.raises(DeviceError, match=why):
        ms.lower(softmax, "f32[4,8]", target=target).sass(architecture)


# ---------------------------------------------------------------- reading figures
LISTING = """
//--------------------- .text._ZN4soft --------------------------
\t.section\t.text._ZN4softmax_1,"ax",@progbits
.text._ZN4softmax_1:
        /*0000*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
.L_x_0:
        /*0010*/              @!P0 LDG.E.U8.CONSTANT R0, desc[UR4][R2.64] ;
        /*0020*/                   STG.E desc[UR4][R2.64], R4 ;
        /*0030*/                   CALL.ABS.NOINC `(_ZN4softmax_1) ;
        /*0040*/                   NOP;
//--------------------- SYMBOLS
        /*0050*/                   LDG.E R4, desc[UR4][R2.64] ;
"""


def test_a_listing_is_read_and_tidied():
    tidy = offline._tidy(LISTING, "softmax_1")
    assert tidy.splitlines() == ["    0000  LDG.E.128 R4, desc[UR4][R2.64]", ".L_x_0:",
                                 "    0010  @!P0 LDG.E.U8.CONSTANT R0, desc[UR4][R2.64]",
                                 "    0020  STG.E desc[UR4][R2.64], R4", "    0030  CALL.ABS.NOINC `(softmax_1)"]
    assert offline._widths(tidy) == (("LDG", 8, 1), ("LDG", 128, 1), ("STG", 32, 1))


def test_float64_instructions_are_told_from_others():
    found = offline.DOUBLE.findall("DADD R0, R1\nFADD R0\nF2F.F64.F32 R2, R3\nMUFU.RCP64H R4\nDEPBAR.LE SB0\nLDG.E.64 R2\nI2F.F64 R1\n")
    assert len(found) == 4


def test_each_broken_promise_is_said():
    source = ms.lower(softmax, "f32[64,30000]", target="cuda", device="v100", strategy="astitch")[0]
    kernel, text = source.kernel, source.text
    assert kernel.grid_barriers == 2
    kept = offline.Assembled(kernel.name, "sm_90", kernel.registers, 0, kernel.shared_bytes, text.count("cuda.syncthreads()"),
                             text.count("cuda.syncwarp()"), 2, 0, 0, (), "", "")
    assert not broken(source, kept)
    for figures, why in (({"spill_bytes": 8}, "spilled"), ({"registers": 255}, "255 registers a thread"), ({"doubles": 1}, "1 float64"),
                         ({"shared_bytes": 0}, "0 B of shared"), ({"block_barriers": 0}, "0 block barriers"),
                         ({"warp_barriers": 3}, "3 warp barriers"), ({"grid_barriers": 1}, "1 grid barriers"),
                         ({"unordered": 1}, "read-only path")):
        found = broken(source, replace(kept, **figures))
        assert len(found) == 1 and why in found[0]
