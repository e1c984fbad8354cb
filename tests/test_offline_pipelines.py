"""Machine code of pipelines, without a GPU: what a queue holds is never read by a stale path. Run with ``-m offline_cuda``."""

import re
from dataclasses import replace

import numpy as np
import pytest
from machine_promises import assemble_pipeline, broken_pipeline
from stitch_help import traced
from test_cuda_pipeline import gradient, layernorm, mlp

from minisitch.device import DEVICES
from minisitch.runtime.cuda import compile as cuda_compile
from minisitch.runtime.cuda.offline import ARCHITECTURES, missing
from minisitch.simplify import simplify
from minisitch.strategies.kitsune.emit import emit_pipeline
from minisitch.strategies.kitsune.pipeline import design

pytestmark = [pytest.mark.offline_cuda, pytest.mark.skipif(bool(missing()), reason=missing() or "present")]
H100 = DEVICES["h100"]
PROGRAMS = {"mlp": (mlp, (8192, 256), (256, 1024), (1024, 256)), "layernorm": (layernorm, (8192, 256), (256, 512), (512,)),
            "gradient": (gradient, (8192, 128), (128, 256), (8192, 256)),
            "half": (mlp, *(np.broadcast_to(np.float16(0), shape) for shape in ((8191, 64), (64, 256), (256, 64))))}


def emitted(name):
    function, *shapes = PROGRAMS[name]
    graph = simplify(traced(function, *shapes))
    found = design(graph, H100)
    return emit_pipeline(graph, replace(found, stages=tuple(replace(s, blocks=1 if s.role == "final" else 32) for s in found.stages)), H100)


def assembled(source, architecture, text=""):
    return assemble_pipeline(replace(source, text=text or source.text), architecture)


@pytest.mark.parametrize(("name", "architecture"), [*(("mlp", a) for a in ARCHITECTURES), ("layernorm", "sm_80"), ("gradient", "sm_90"), ("half", "sm_90")])
def test_pipelines_assemble_as_they_were_meant(name, architecture):
    source = emitted(name)
    assert not broken_pipeline(source, assembled(source, architecture))


def test_a_broken_promise_is_named():
    source = emitted("mlp")
    made = assembled(source, "sm_90")
    mutants = {"spilled": {"spill_bytes": 8}, "registers a thread": {"registers": source.registers + 1}, "shared memory": {"shared_bytes": 0},
               "float64": {"doubles": 1}, "grid and": {"grid_barriers": 0}, "read-only path": {"unordered": 2},
               "ld.acquire.gpu.global": {"ptx": made.ptx.replace("ld.acquire", "ld.relaxed")}}
    for word, change in mutants.items():
        (said,) = broken_pipeline(source, replace(made, **change))
        assert word in said


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_acquire_empties_the_first_level_cache_and_a_release_waits_for_all_writes(architecture):
    """The plain loads of a tile come after both: no line of the first-level cache is older than the count that was seen."""
    found = re.findall(r"LDG\S*\.STRONG\.GPU|RED\S*\.STRONG\.GPU|CCTL\.IVALL|MEMBAR\S*\.GPU|BAR\.SYNC|LDG|STG|BRA",
                       assembled(emitted("mlp"), architecture).sass)
    looks = [k for k, what in enumerate(found) if what.startswith("LDG") and "STRONG" in what]
    counts = [k for k, what in enumerate(found) if what.startswith("RED")]
    assert looks and counts
    assert {found[k + 1] for k in looks} == {"CCTL.IVALL"}
    assert all("MEMBAR" in found[k - 1] for k in counts)


def test_plain_waits_would_be_seen():
    source = emitted("mlp")
    relaxed = re.sub(r"load_acquire\((counters), (.*)\) (<=?)", r"\1[\2] \3", source.text)
    assert assembled(source, "sm_90", relaxed).sass.count("CCTL.IVALL") == 0 < assembled(source, "sm_90").sass.count("CCTL.IVALL")


def test_no_access_moves_over_an_acquire_or_a_release():
    """The two are marked as touching memory: the load behind one and the store before the other stay there."""
    text = """def k(x, counters):
    x[1] = x[0]
    add_release(counters, 0, 1)
    while load_acquire(counters, 32) == 0:
        pass
    x[3] = x[0]
"""
    made = cuda_compile.ptx(text, "k", ["float32", "int32"], "sm_90")
    kinds = re.findall(r"(ld\.acquire|red\.release|ld\.global|st\.global)", made)
    first = kinds.index("ld.acquire")
    assert kinds[:3] == ["ld.global", "st.global", "red.release"] and kinds[-2:] == ["ld.global", "st.global"] and first == 3


