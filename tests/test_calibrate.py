"""Calibration: what it writes is what is read, and the ranks it compares are ranks."""

import json
import math
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import softmax
from stitch_help import lowered, one_kernel, traced

from minisitch.__main__ import main
from minisitch.errors import DeviceError
from minisitch.explain import calibrate as cal
from minisitch.kernel.nests import parts
from minisitch.runtime import this_machine as devices
from minisitch.runtime.this_machine import BUILT_IN, HEAVY_NS, cpu_with, device_file, this_cpu
from minisitch.strategies.optimum import moved_us

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import correlation

FIGURES = {**BUILT_IN, "flops": 1e11, "launch_us": 7.0, "source": "a test"}
NO_LOOPS = tuple((name, 1e-9) for name in BUILT_IN["core_ns"])
GOOD = {"version": devices.FILE_VERSION, "machine": devices.machine(), "date": "2026-11-20", "figures": FIGURES, "raw": {}}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A device file of this test's own, not there yet."""
    monkeypatch.setenv("MINISITCH_DEVICE", str(tmp_path / "deep" / "cpu.json"))
    return tmp_path / "deep" / "cpu.json"


def put(path, content):
    path.parent.mkdir(exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


# ---------------------------------------------------------------- the device file
def test_the_file_is_what_this_cpu_is_from_then_on(path):
    assert this_cpu() == cpu_with(BUILT_IN), "no file: the built-in figures"
    put(path, GOOD)
    assert this_cpu() == cpu_with(FIGURES) != cpu_with(BUILT_IN)
    assert (this_cpu().name, this_cpu().launch_us, this_cpu().source) == ("cpu", 7.0, "a test")
    put(path, {**GOOD, "figures": {**FIGURES, "launch_us": 11.25}})
    assert this_cpu().launch_us == 11.25, "a file that changed is read again"
    path.unlink()
    assert this_cpu() == cpu_with(BUILT_IN)


def test_the_file_is_read_once(path, monkeypatch):
    put(path, GOOD)
    reads, read = [], Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, **k: reads.append(self) or read(self, **k))
    for _ in range(5):
        this_cpu()
    assert reads == [path]


def _without(name):
    return {k: v for k, v in FIGURES.items() if k != name}


def _core(**changed):
    return {**FIGURES, "core_ns": {**FIGURES["core_ns"], **changed}}


@pytest.mark.parametrize(("content", "says"), [
    ("{", "cannot be read"), ("[]", "version list"), ({**GOOD, "version": 99}, "version 99"), ({}, "version None"),
    ({**GOOD, "machine": "abacus"}, "measured on 'abacus'"), ({**GOOD, "figures": None}, "lacks figures"),
    ({**GOOD, "figures": _without("flops")}, "lacks figures"), ({**GOOD, "figures": {**FIGURES, "levels": []}}, "levels"),
    ({**GOOD, "figures": {**FIGURES, "levels": [[1, 2]]}}, "levels"),
    ({**GOOD, "figures": {**FIGURES, "core_ns": {"light": 1}}}, "core_ns"), ({**GOOD, "figures": _core(loop=-1)}, "-1"),
    ({**GOOD, "figures": _core(loop=0)}, "0"), ({**GOOD, "figures": _core(loop="fast")}, "'fast'"),
    ({**GOOD, "figures": _core(loop=True)}, "True"), ({**GOOD, "figures": {**FIGURES, "flops": math.nan}}, "nan"),
    ({**GOOD, "figures": {**FIGURES, "levels": [[1 << 20, math.inf, 1.0]]}}, "inf"),
    ({**GOOD, "figures": {**FIGURES, "source": 3}}, "source"),
])
def test_a_broken_or_foreign_file_is_refused(path, content, says):
    put(path, content)
    with pytest.raises(DeviceError) as refused:
        this_cpu()
    assert says in str(refused.value) and str(path) in str(refused.value)
    assert "python -m minisitch calibrate" in str(refused.value) and "MINISITCH_DEVICE=0" in str(refused.value)


def test_where_the_file_is(monkeypatch, tmp_path):
    monkeypatch.setenv("MINISITCH_DEVICE", "off")
    assert device_file() is None and this_cpu() == cpu_with(BUILT_IN)
    monkeypatch.delenv("MINISITCH_DEVICE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert device_file() == tmp_path / "minisitch" / "cpu.json"


def test_one_core_has_one_rate(monkeypatch):
    monkeypatch.setenv("MINISITCH_THREADS", "1")
    assert all(level.all_cores == level.one_core for level in this_cpu().caches) and this_cpu().sms == 1


# ---------------------------------------------------------------- ranks
def test_spearman_by_hand():
    assert correlation.spearman([1, 2, 3], [10, 200, 3000]) == pytest.approx(1)
    assert correlation.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    # ranks 1 2 3 4 and 1 2.5 2.5 4: 1 - (0.25 + 0.25) * ... = 4.5 / sqrt(5 * 4.5)
    assert correlation.spearman([1, 2, 3, 4], [5, 6, 6, 7]) == pytest.approx(4.5 / math.sqrt(5 * 4.5))
    assert correlation.spearman([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(0.6)
    assert math.isnan(correlation.spearman([1, 2], [3, 3]))


@given(st.lists(st.tuples(st.integers(-99, 99), st.integers(-99, 99)), min_size=2, max_size=30))
def test_spearman_sees_order_only(pairs):
    a, b = ([float(p[i]) for p in pairs] for i in (0, 1))
    found = correlation.spearman(a, b)
    stretched = correlation.spearman([math.exp(x / 9) for x in a], b)
    assert (math.isnan(found) and math.isnan(stretched)) or found == pytest.approx(stretched, abs=1e-9)
    if not math.isnan(found):
        assert -1 - 1e-9 <= found <= 1 + 1e-9
        assert found == pytest.approx(correlation.spearman(b, a), abs=1e-9)
        assert found == pytest.approx(-correlation.spearman([-x for x in a], b), abs=1e-9)


# ---------------------------------------------------------------- the whole
@pytest.fixture
def little(monkeypatch):
    """Calibration of a few figures on a few programs; the others keep their built-in values."""
    monkeypatch.setattr(cal, "HEAVY_NS", {n: HEAVY_NS[n] for n in ("exp float32", "arccosh float64", "mod int")})
    monkeypatch.setattr(cal, "WORKING_SETS", (1 << 16, 1 << 18, 1 << 20))
    work, products = iter([123_456, 200_000]), iter([50.0, 70.0])  # later, others had the second core
    monkeypatch.setattr(cal, "break_even", lambda: next(work))
    monkeypatch.setattr(cal, "product_us", lambda: next(products))


def test_calibrate_measures_and_writes(path, little, monkeypatch):
    heard = []
    monkeypatch.setattr(cal, "now", heard.append)
    found = cal.calibrate()
    numbers = [int(h.split(", ")[1].split(" of ")[0]) for h in heard]
    assert heard[-1].startswith("measuring mod int, ") and numbers == [*range(1, int(heard[-1].split(" of ")[1]) + 1)]
    assert found.raw["matmul 1024"] == 50.0
    assert found.raw["serial below"] == 123_456 == found.device.serial_below and found.figures["core_ns"]["exp float32"] > 0
    assert all(word in str(found) for word in ("working set", "a launch ", "nanoseconds an element of float32: "))
    found.write(path)
    assert this_cpu() == found.device and [p.name for p in path.parent.iterdir()] == ["cpu.json"]


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "plain").write_text("")
    found = cal.Calibration(FIGURES, {})
    with pytest.raises(DeviceError, match="cannot write the device file .*MINISITCH_DEVICE"):
        found.write(tmp_path / "plain" / "cpu.json")


def test_one_operation_is_all_that_is_priced(monkeypatch):
    """The kernel with ``exp`` has it once an element, and nothing else that the one without lacks."""
    graphs, compiled = [], cal.compile_graph
    monkeypatch.setattr(cal, "compile_graph", lambda graph, *rest: graphs.append(graph) or compiled(graph, *rest))
    with_exp, without = (cal._one_operation(op, "float32", 4, 32) for op in ("exp", ""))
    x, r = np.linspace(0.2, 0.9, 32, dtype=np.float32), np.linspace(0.2, 0.9, 4, dtype=np.float32)
    for call, meaning in ((with_exp, np.exp), (without, lambda v: v)):
        call.arguments[0][:], call.arguments[1][:] = x, r
        call()
        np.testing.assert_allclose(call.arguments[2], meaning(x * r[:, None]).sum(1), rtol=1e-5)

    def evaluations(graph):
        (kernel,) = lowered(graph, "xla", "cpu", cpu_with(BUILT_IN), "schedule").kernels
        found = Counter()
        for segment in kernel.segments:
            for phase in segment.phases:
                for s in (*parts(phase).body, *parts(phase).folds):
                    found[getattr(s, "op", type(s).__name__)] += segment.rows * phase.cols * phase.serial
        return found
    assert evaluations(graphs[0]) == evaluations(graphs[1]) + Counter(exp=4 * 32)


def test_what_all_cores_move_is_told_without_the_launch_and_the_join():
    """A machine of two cores that moves 100 GB/s a core up to 1 MB and 40 and 50 GB/s beyond; a launch takes 1 us, a join 4."""
    def copied(nbytes):
        alone = nbytes / (1e5 if nbytes <= 1 << 20 else 4e4)
        return 1 + alone, 5 + (alone / 2 if nbytes <= 1 << 20 else alone * 40 / 50)
    levels, join = cal.rates({n: copied(n) for n in cal.WORKING_SETS}, 1.0, 2)
    assert join == pytest.approx(4)
    for nbytes, one, both in levels:
        assert (one, both) == (pytest.approx((1e11, 2e11)) if nbytes <= 1 << 20 else pytest.approx((4e10, 5e10)))
    kernel = one_kernel(traced(lambda x: -x, (256, 256)), replace(cpu_with({**BUILT_IN, "levels": levels}, 2), serial_below=1,
                                                                  launch_us=1.0, grid_barrier_us=join, core_ns=NO_LOOPS))
    assert correlation.cost.kernel_us(kernel) == pytest.approx(copied(1 << 19)[1], rel=1e-3), "what was measured is what is modelled"


def test_all_cores_are_never_slower_than_one_nor_faster_than_each_alone():
    levels, join = cal.rates({1 << 18: (3.0, 1.0), 1 << 20: (9.0, 30.0)}, 1.0, 4)
    assert join == pytest.approx((30 - 1 - 8 / 4 + 1.0 - 1 - 2 / 4) / 2)
    assert [both / one for _, one, both in levels] == pytest.approx([4, 1])
    (level,), join = cal.rates({1 << 18: (3.0, 0.5)}, 1.0, 4)
    assert join == 1.0 and level[2] == 4 * level[1], "a join costs something, whatever was measured"
    (first, _), _ = cal.rates({1 << 18: (3.0, 90.0), 1 << 20: (9.0, 10.0)}, 1.0, 2)
    assert first[1] == first[2], "other programs had the second core: one alone is as fast"


@given(st.lists(st.tuples(st.integers(1, 1 << 40), st.floats(1e9, 1e12), st.floats(1e9, 1e12)), min_size=1, max_size=6),
       st.integers(1, 1 << 40), st.integers(1, 1 << 40))
def test_no_nearer_level_is_slower_whatever_was_measured(levels, fewer, more):
    """What lower bounds rely on: bytes among fewer bytes never move more slowly."""
    device, (fewer, more) = cpu_with({**BUILT_IN, "levels": levels}, 2), sorted((fewer, more))
    assert [at.size for at in device.caches] == sorted(n for n, _, _ in levels)
    for rate in ("one_core", "all_cores"):
        rates = [getattr(at, rate) for at in device.caches]
        assert rates == sorted(rates, reverse=True) and set(rates) <= {r for level in levels for r in level[1:]}
    assert moved_us(fewer, device) / fewer <= moved_us(more, device) / more * (1 + 1e-9)


def test_the_model_is_priced_for_the_device_that_is_asked_for():
    kernel = one_kernel(traced(softmax, (8, 96)), cpu_with(BUILT_IN))
    sample, slow = correlation.Sample("p", "astitch", kernel, 5.0), replace(cpu_with(BUILT_IN), launch_us=1000.0)
    assert sample.modelled(slow) > 1000 > sample.modelled(cpu_with(BUILT_IN))


def test_the_study_ranks_the_kernels_of_a_folders_programs(path, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    put(path, GOOD)
    for name in ("tiny_program", "zoo_of_it"):
        (tmp_path / f"{name}.py").write_text("import numpy as np\nPRESETS = {'small': 2, 'full': 64}\n"
                                             "def make(preset):\n    return (lambda x: np.exp(x) * 2), (np.ones(PRESETS[preset]),)\n")
    correlation.main(["--seconds", "0", "--models", str(tmp_path), "--out", str(tmp_path / "all.json")])
    said, raw = capsys.readouterr().out, json.loads((tmp_path / "all.json").read_text())
    assert all(words in said for words in ("rank correlation", "with a test", "farthest off", "no time was left for zoo_of_it full"))
    assert {k[0] for k in raw["kernels"]} == {"tiny_program full"} and raw["kernels"][0][3] > 0
    assert len({k[2] for k in raw["kernels"]}) == len(raw["kernels"]), "each kernel once"


# ---------------------------------------------------------------- the command
def test_the_command_refuses_what_it_cannot_do(capsys, monkeypatch):
    assert main(["calibrate"]) == 2 and "MINISITCH_DEVICE=0" in capsys.readouterr().err


def test_the_command_prints_and_writes(path, little, capsys, monkeypatch):
    put(path, "{")  # a broken file is what the command is there to mend
    monkeypatch.setattr("minisitch.__main__.calibrate", lambda: cal.Calibration(FIGURES, {"serial below": 1}))
    assert main(["calibrate"]) == 0
    assert f"wrote {path}" in capsys.readouterr().out and this_cpu().source == "a test"
