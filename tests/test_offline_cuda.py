"""Machine code without a GPU: what the schedule assumed is what the assembler made. Run with ``-m offline_cuda``.

Takes ``pip install 'minisitch[offline-cuda]'``; every check has a mutant that it must reject.
"""

from dataclasses import replace

import numpy as np
import pytest
from cuda_help import product_text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_promises import REDUCE_IN_DOUBLE, broken
from programs import softmax, standardised
from stitch_help import traced
from test_emit import all_maps
from test_merge import two_cells

import minisitch as ms
from minisitch.device import DEVICES
from minisitch.lower import lower_program
from minisitch.ops import OPS
from minisitch.runtime.cuda import compile as cuda_compile
from minisitch.runtime.cuda.offline import ARCHITECTURES, assemble, missing, read_back
from minisitch.stitch.compose import Merging
from minisitch.strategies.kitsune.product import Matrix, Product, Tile
from minisitch.testing import graphs
from minisitch.trace import Program

H100 = DEVICES["h100"]
pytestmark = [pytest.mark.offline_cuda, pytest.mark.skipif(bool(missing()), reason=missing() or "present")]


def layernorm(x, scale, shift):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def layernorm_gradient(x, scale, dy):
    """Row sums and column sums of the same data: carries, and partial results behind a grid barrier."""
    mean = x.mean(-1, keepdims=True)
    spread = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    h, g = (x - mean) * spread, dy * scale
    return spread * (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True)), (dy * h).sum(0), dy.sum(0)


def gelu(x, b):
    x = x + b
    return 0.5 * x * (1 + np.tanh(0.8 * (x + 0.04 * x ** 3)))


def adam(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 0.001 * m / (np.sqrt(v) + 1e-8), m, v


def whole_numbers(i, n):
    return (i // 7 + n % 5).sum(-1), (i > n).any(-1), np.maximum(i, n).max(0)


STANDARD = {
    "softmax": (softmax, "f32[8192,1024]"), "split rows": (softmax, "f32[64,30000]"), "packed rows": (softmax, "f32[750000,32]"),
    "layernorm": (layernorm, "f32[4096,1024]", "f32[1024]", "f32[1024]"),
    "layernorm's gradient": (layernorm_gradient, "f32[4096,1024]", "f32[1024]", "f32[4096,1024]"),
    "gelu": (gelu, "f32[4096,3072]", "f32[3072]"), "adam": (adam, *["f32[1024,1024]"] * 4), "columns": (standardised, "f32[5000,700]"),
    "float16": (softmax, "f16[512,768]"), "float64": (softmax, "f64[512,768]"), "integers": (whole_numbers, "i32[300,200]", "i64[300,200]"),
}


def kernels(name, strategy="astitch"):
    fn, *types = STANDARD[name]
    return list({s.text: s for s in ms.lower(fn, *types, strategy=strategy, target="cuda", device="h100")}.values())


def check(sources, architecture):
    """Every promise of every kernel holds."""
    for source in sources:
        made = assemble(source, architecture)
        found = broken(source, made)
        assert not found, f"{made.name}, {made}\n" + "\n".join(found) + f"\n\n{source.text}"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", STANDARD)
def test_standard_kernels_keep_what_was_assumed(name, architecture):
    check(kernels(name), architecture)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_merged_kernels_keep_what_was_assumed(architecture):
    """Parts that are composed in different ways, side by side in one kernel."""
    sources = ms.lower(two_cells, *["f32[128,128]"] * 4, *["f32[512]"] * 2, *["f32[156,512]"] * 2, strategy="auto", target="cuda",
                       device="v100")
    assert any(isinstance(s.kernel.plan.composition, Merging) for s in sources)
    check(sources, architecture)


def global_widths(made):
    """(instruction, bits) of all accesses of global memory."""
    return {(what, bits) for what, bits, _ in made.widths if what in ("LDG", "STG")}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["softmax", "layernorm", "gelu", "adam", "float16", "float64"])
def test_standard_kernels_move_16_bytes_a_thread(name, architecture):
    """No access of another width: LDG.E.128 and STG.E.128 alone."""
    (source,) = kernels(name)
    made = assemble(source, architecture)
    assert global_widths(made) == {("LDG", 128), ("STG", 128)}, made
    assert ".128" in made.sass and "LDL" not in made.sass and "STL" not in made.sass, "registers have no addresses"


def test_a_row_is_fetched_once_and_stays_in_registers():
    (source,) = kernels("softmax")
    made = assemble(source, "sm_90")
    assert ("LDG", 128, 2) in made.widths and ("STG", 128, 2) in made.widths, "eight columns a thread, in and out"
    assert made.shared_bytes == 64, "and two times eight warps meet"


@pytest.mark.parametrize(("fn", "types"), [(np.var, ["f32[1000000]"]), (layernorm, ["f64[4096,1024]", "f64[1024]", "f64[1024]"])],
                         ids=["chunks beside a single number", "rows of float64"])
def test_blocks_leave_each_thread_its_registers(fn, types):
    """Both spilled once: a scalar's segment made the chunks' blocks twice as large, and a float64 takes two registers."""
    check(ms.lower(fn, *types, strategy="astitch", target="cuda", device="v100"), "sm_75")


def test_odd_rows_stay_narrow():
    (source,) = ms.lower(softmax, "f32[8192,1023]", strategy="astitch", target="cuda", device="h100")
    made = assemble(source, "sm_90")
    assert not broken(source, made) and global_widths(made) == {("LDG", 32), ("STG", 32)}


def test_a_single_odd_row_has_a_narrow_rest():
    (source,) = ms.lower(np.tanh, "f32[1000003]", strategy="astitch", target="cuda", device="h100")
    made = assemble(source, "sm_90")
    assert not broken(source, made) and global_widths(made) == {(what, bits) for what in ("LDG", "STG") for bits in (32, 128)}


@pytest.mark.parametrize("strategy", ms.STRATEGIES)
def test_kernels_of_each_strategy(strategy):
    check(kernels("layernorm", strategy), "sm_90")


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(max_nodes=10, dtypes=("float32", "int32"), library=False), strategy=st.sampled_from(sorted(ms.STRATEGIES)),
       architecture=st.sampled_from(ARCHITECTURES))
def test_kernels_of_random_programs(graph, strategy, architecture):
    stages = lower_program(Program(graph, None, None, (), ()), strategy, "cuda", H100)
    check({s.text: s for s in stages.sources[:2] if s.kernel.grid}.values(), architecture)


def test_no_float32_operation_computes_in_float64():
    """All in a few kernels. Sine, cosine and tangent of huge angles do; ``broken`` knows them."""
    graph, _, names = all_maps("float32")
    graph = replace(graph, outputs=tuple(o for o, name in zip(graph.outputs, names, strict=True) if name not in REDUCE_IN_DOUBLE))
    sources = lower_program(Program(graph, None, None, (), ()), "astitch", "cuda", H100).sources
    assert not [why for source in sources for why in broken(source, assemble(source, "sm_90")) if "float64" in why]
    computed = {n.op for source in sources for n in source.kernel.graph.nodes}
    assert computed <= set(OPS) | {"input"} and len(computed) > 50


@pytest.mark.parametrize("op", sorted(REDUCE_IN_DOUBLE))
def test_what_is_excused_from_float64_needs_it(op):
    source, = ms.lower(getattr(np, op), "f32[4096]", target="cuda", device="h100")
    assert assemble(source, "sm_90").doubles


# ---------------------------------------------------------------- mutants: each check rejects what it is for
def mutant(name, old="", new="", registers=0, architecture="sm_90"):
    """What is said of a standard kernel after one change of its text, or with fewer registers."""
    source, = kernels(name)
    assert old in source.text
    changed = replace(source, text=source.text.replace(old, new) if old else source.text)
    if registers:
        changed = replace(changed, kernel=replace(source.kernel, registers=registers))
    return source, assemble(changed, architecture)


def test_a_float64_literal_is_found():
    source, made = mutant("gelu", "np.float32(0.5)", "0.5")
    assert any("float64 instructions" in why for why in broken(source, made))


def test_a_spill_is_found():
    source, made = mutant("layernorm's gradient", registers=16)
    assert made.spill_bytes and any("spilled" in why for why in broken(source, made))


def test_too_many_registers_are_found():
    source, made = mutant("split rows", registers=200)
    tight = replace(source, kernel=replace(source.kernel, registers=made.registers - 1))
    assert any("registers a thread" in why for why in broken(tight, made))


def test_a_lost_block_barrier_is_found():
    source, made = mutant("softmax", "cuda.syncthreads()", "pass")
    assert any("block barriers" in why for why in broken(source, made))


def test_a_lost_grid_barrier_is_found():
    source, made = mutant("split rows", "grid.sync()", "pass")
    assert any("grid barriers" in why for why in broken(source, made))


def test_a_load_by_the_read_only_path_is_found():
    """Such loads are for what no kernel writes while this one runs: a grid barrier does not order them."""
    source, = kernels("split rows")
    made = assemble(source, "sm_80")
    assert made.ptx.count("ld.global.v4.f32")
    cached = read_back(made.name, made.ptx.replace("ld.global.v4.f32", "ld.global.nc.v4.f32"), source.kernel.registers, "sm_80")
    assert ".CONSTANT" in cached.sass and ".CONSTANT" not in made.sass
    assert any("read-only path" in why for why in broken(source, cached))


# ---------------------------------------------------------------- across blocks
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_fence_empties_the_first_level_cache(architecture):
    """Why plain loads may read what other blocks wrote before a barrier: on these machines acquiring invalidates L1."""
    text = "def k(x):\n    x[cuda.threadIdx.x] = x[cuda.threadIdx.x + 32]\n    cuda.threadfence()\n    x[0] = x[64]\n"
    sass = read_back("k", cuda_compile.ptx(text, "k", ["float32"], architecture), 255, architecture).sass
    fence, after = sass.index("MEMBAR"), sass.rindex("LDG")
    assert "CCTL.IVALL" in sass[fence:after]


def test_what_is_read_after_a_grid_barrier_is_loaded_after_it():
    """The barrier is a call that the compiler cannot see into: no load of scratch moves above it."""
    source, = kernels("split rows")
    made = assemble(source, "sm_90")
    parts = made.sass.split("cudaCGSynchronize")
    assert len(parts) == 3 and all("LDG" in part for part in parts)


# ---------------------------------------------------------------- the doors
def test_lower_shows_machine_code():
    sources = ms.lower(softmax, "f32[64,4096]", target="cuda")
    assert "BAR.SYNC" in sources.sass("sm_75") and ".target sm_75" in sources.ptx("sm_75")
    assert f"{sources.assembled('sm_75')[0].registers} registers, no spills" in sources.sass("sm_75")
    assert traced(softmax, (4, 8))


# ---------------------------------------------------------------- products
@pytest.mark.parametrize(("dtype", "architecture"), [*(("float32", a) for a in ARCHITECTURES), ("float16", "sm_90"), ("bool", "sm_75")])
def test_a_product_keeps_its_sums_in_registers(dtype, architecture):
    """Both tiles: no spills within what 256 threads may have, 4x4 products for 8 loads of shared memory, no float64."""
    for tile in (Tile(), Tile(32, 32, 16, 2, 2)):
        a, b, c = Matrix("a", dtype, 1000), Matrix("b", dtype, 1, 1000), Matrix("c", dtype, 3000)
        made = product_text(a, b, c, 3000, 3000, 1000, tile=tile)
        found = read_back(made.name, cuda_compile.ptx(made.text, made.name, made.dtypes, architecture), 255, architecture)
        assert not found.spill_bytes and found.registers <= 128 and not found.doubles
        assert found.shared_bytes == Product(3000, 3000, 1000, a, b, tile).shared_bytes and found.block_barriers >= 2
        if dtype == "float32":
            multiplies, loads = found.sass.count("FFMA"), dict((w, n) for w, _, n in found.widths)["LDS"]
            assert multiplies >= loads * tile.rows_each * tile.cols_each / (tile.rows_each + tile.cols_each)
