"""Text to machine code: what it computes, that it is vector code, and a cache that trusts nothing it finds."""

import itertools
import os
import pickle
import platform
import re
import subprocess
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest
from assembly_help import inspect_assembly
from full_disk import no_file_may_grow

from minisitch.runtime import store
from minisitch.runtime.cpu import compile as compiler
from minisitch.runtime.cpu import math as cpu_math
from minisitch.runtime.cpu import object_code
from minisitch.runtime.cpu.compile import Request, compile_cpu, compile_many, load_text

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 1024
SOFTMAX = f"""
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
F32 = ("float32", "float32")
_serial = itertools.count()


def each(expression):
    """A kernel ``y[i] = expression`` under a text that no test used before, and its name."""
    name = f"each_{next(_serial)}"
    return f"def {name}(first, last, x, y):\n    for i in range(first, last):\n        y[i] = {expression}\n", name


def fold(expression, start="np.float32(0.0)"):
    name = f"fold_{next(_serial)}"
    return (f"START = {start}\ndef {name}(first, last, x, y):\n    for row in range(first, last):\n"
            f"        x_row = x[row * {WIDTH}:(row + 1) * {WIDTH}]\n        s = START\n"
            f"        for col in range({WIDTH}):\n            {expression}\n        y[row] = s\n"), name


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache folder of the test's own, and a memory without kernels."""
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path / "cache"))
    compiler.forget_code()
    return tmp_path / "cache"


def softmax_of(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# ---------------------------------------------------------------- what it computes


def test_softmax_compiled_and_plain():
    x = np.random.default_rng(0).normal(size=(4, WIDTH)).astype(np.float32)
    for function in (compile_cpu(SOFTMAX, "softmax", F32).function, load_text(SOFTMAX, "softmax")):
        y = np.zeros_like(x)
        function(1, 3, x.reshape(-1), y.reshape(-1))
        assert np.allclose(y[1:3], softmax_of(x)[1:3], rtol=1e-5)
        assert not y[0].any() and not y[3].any()


def test_masks_and_nan_survive():
    x = np.zeros((3, WIDTH), np.float32)
    x[0, 5:] = -np.inf
    x[1, 7] = np.nan
    x[2, :] = -np.inf
    y = np.empty_like(x)
    compile_cpu(SOFTMAX, "softmax", F32).function(0, 3, x.reshape(-1), y.reshape(-1))
    assert np.allclose(y[0, :5], 0.2) and not y[0, 5:].any()
    assert np.isnan(y[1]).all() and np.isnan(y[2]).all()


def test_read_only_inputs_and_half_floats():
    text, name = each("float_to_half(half_to_float(x[i]) + np.float32(1.0))")
    x = np.arange(100, dtype=np.float16)
    x.flags.writeable = False
    y = np.empty_like(x)
    compile_cpu(text, name, ("float16", "float16")).function(0, 100, x.view(np.uint16), y.view(np.uint16))
    assert np.array_equal(y, x + 1)


def test_math_in_plain_text_is_numpys():
    text, name = each("math.sqrt(x[i]) + math.atan2(x[i], x[i]) + math.copysign(x[i], x[i])")
    x, y = np.array([-1.0, 4.0], np.float32), np.empty(2, np.float32)
    load_text(text, name)(0, 2, x, y)
    assert np.isnan(y[0]) and y[1] == pytest.approx(2 + np.pi / 4 + 4)


def test_only_accumulators_are_reordered():
    """A sum may be taken in any order; what stands inside it is computed as written."""
    text, name = fold("s += (x_row[col] + np.float32(12582912.0)) - np.float32(12582912.0)")
    x, y = np.random.default_rng(0).normal(size=WIDTH).astype(np.float32) * 3, np.empty(1, np.float32)
    compile_cpu(text, name, F32).function(0, 1, x, y)
    assert y[0] == np.rint(x).sum()  # adding 1.5 * 2**23 rounds: a compiler that cancels it gives x.sum()


@pytest.mark.parametrize("function", ["exp", "expm1", "log", "log1p", "log2", "log10", "tanh", "erf", "sin", "cos"])
def test_a_sum_leaves_the_functions_inside_it_alone(function):
    text, name = fold(f"s += {function}_f32(x_row[col])")
    x, y = np.random.default_rng(2).uniform(0.1, 5, WIDTH).astype(np.float32), np.empty(1, np.float32)
    compile_cpu(text, name, F32).function(0, 1, x, y)
    assert y[0] == pytest.approx(getattr(cpu_math, f"{function}_f32")(x).sum(dtype=np.float64), rel=2e-6, abs=1e-4)


@pytest.mark.parametrize(("dtype", "expression", "start", "want"), [
    ("int32", "s += x_row[col]", "0", np.sum), ("int64", "s = s * x_row[col]", "1", np.prod),
    ("float64", "s += x_row[col]", "np.float64(0.0)", np.sum), ("float64", "s *= x_row[col]", "np.float64(1.0)", np.prod),
    ("float32", "s = maximum(s, x_row[col])", "np.float32(-np.inf)", np.max),
    ("int32", "s = minimum(s, x_row[col])", "np.int32(2147483647)", np.min),
])
def test_folds_of_every_kind(dtype, expression, start, want):
    text, name = fold(expression, start)
    x, y = np.random.default_rng(1).integers(1, 3, WIDTH).astype(dtype), np.empty(1, dtype)
    x[4:] = 1
    compile_cpu(text, name, (dtype, dtype)).function(0, 1, x, y)
    assert y[0] == want(x)


def test_kernels_of_one_name_do_not_mix():
    """Symbols of all kernels share one table: equal names, different texts."""
    texts = [f"def same(first, last, x, y):\n    for i in range(first, last):\n        y[i] = x[i] + x.dtype.type({n})\n"
             .replace("x.dtype.type", "np.float32") for n in range(3)]
    kernels = [compile_cpu(t, "same", F32) for t in texts]
    x, y = np.zeros(1, np.float32), np.empty(1, np.float32)
    for n, kernel in enumerate(kernels):
        kernel.function(0, 1, x, y)
        assert y[0] == n


def test_an_error_in_the_text_shows_the_text():
    text, name = each("x[i] / undefined_helper(x[i])")
    with pytest.raises(Exception, match="undefined_helper"):
        compile_cpu(text, name, F32)
    plain = load_text(*each("x[i + 1000]"))
    with pytest.raises(IndexError) as caught:
        plain(0, 1, np.zeros(1), np.zeros(1))
    assert "y[i] = x[i + 1000]" in "".join(traceback.format_exception(caught.value))


# ---------------------------------------------------------------- vector code


def widest_register():
    """A pattern of the widest vector registers that loops on this machine should use."""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features()
    if platform.machine().lower() in ("arm64", "aarch64"):
        return r"\bv\d+\.4s|\bz\d+\.s"
    if features.get("avx512f"):
        return r"%zmm\d+" if features.get("avx512vbmi2") else r"%[yz]mm\d+"
    return r"%ymm\d+" if features.get("avx") else r"\w+ps\s+.*%xmm\d+"


def loops_are_vector_code(text, name, dtypes=F32):
    assembly = inspect_assembly(Request(text, name, dtypes))
    packed = r"v?(?:add|mul|fmadd\d+|fnmadd\d+|max|sub|div)p[sd]\s+.*" if "x86" in platform.machine() else ""
    wide = [line for line in assembly.splitlines() if re.search(packed + widest_register(), line)]
    return len(wide) >= 3


@pytest.mark.parametrize("function", ["exp", "expm1", "log", "log1p", "log2", "log10", "tanh", "erf", "sin", "cos"])
def test_elementary_functions_vectorise(function):
    text, name = each(f"{function}_f32(x[i])")
    assert loops_are_vector_code(text, name)


@pytest.mark.parametrize("text_and_name", [
    (SOFTMAX, "softmax"), fold("s += x_row[col]"), fold("s = maximum(s, x_row[col])"),
    fold("s += exp_f32(x_row[col])"), fold("s *= x_row[col]"),
    each("select(x[i] > np.float32(0.0), x[i], np.float32(0.5) * x[i]) + x[i] / np.float32(3.0)"),
], ids=["softmax", "sum", "max", "sum of exp", "product", "select"])
def test_loops_vectorise(text_and_name):
    assert loops_are_vector_code(*text_and_name)


def test_the_check_of_vector_code_can_fail():
    assert not loops_are_vector_code(*each("math.tan(x[i])"))


def test_short_rows_are_vectorised_before_they_are_unrolled():
    text = ("ZERO = np.float32(0.0)\ndef short(first, last, x, y):\n    for row in range(first, last):\n"
            "        x_row, y_row = x[row * 16:(row + 1) * 16], y[row * 16:(row + 1) * 16]\n        s = ZERO\n"
            "        for col in range(16):\n            s += x_row[col]\n"
            "        for col in range(16):\n            y_row[col] = x_row[col] - s\n")
    x = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    sums = {}
    for short in (False, True):
        y = np.empty_like(x)
        made = compile_cpu(text, "short", F32, short=short)
        made.function(0, 8, x.reshape(-1), y.reshape(-1))
        assert np.allclose(y, x - x.sum(-1, keepdims=True), atol=1e-5)
        sums[short] = len(re.findall(r"\bv?addss\b", inspect_assembly(made.request)))
    from numba.core import codegen, llvm_bindings
    assert codegen.create_pass_builder is llvm_bindings.create_pass_builder
    if sums[False]:  # x86-64
        assert sums[True] < sums[False] / 2


# ---------------------------------------------------------------- the cache


def test_memory_then_disk(cache):
    first = compile_cpu(SOFTMAX, "softmax", F32)
    again = compile_cpu(SOFTMAX, "softmax", F32)
    assert (first.origin, again.origin) == ("compiled", "memory") and again.code is first.code
    compiler.forget_code()
    loaded = compile_cpu(SOFTMAX, "softmax", F32)
    assert loaded.origin == "disk" and Path(loaded.path).read_text() == SOFTMAX
    x, y = np.zeros(WIDTH, np.float32), np.empty(WIDTH, np.float32)
    loaded.function(0, 1, x, y)
    assert np.allclose(y, 1 / WIDTH)
    assert all(f.stat().st_mode & 0o077 == 0 for f in cache.iterdir() if f.is_file()) or not hasattr(os, "geteuid")
    assert not list(cache.glob("*.tmp"))


def test_anything_that_matters_changes_the_key():
    text, name = each("x[i]")
    base = Request(text, name, F32)
    keys = {compiler._key(r) for r in (base, Request(text + "\n", name, F32), Request(text, name + "_", F32),
                                       Request(text, name, ("float64", "float64")), Request(text, name, F32, True))}
    assert len(keys) == 5
    parts = " ".join(compiler._surroundings())
    for version in (np.__version__, __import__("numba").__version__, __import__("llvmlite").__version__, sys.version):
        assert version in parts


EXPLOSIONS = []


class Bomb:
    def __reduce__(self):
        return explode, ()


def explode():
    EXPLOSIONS.append("unpickled")


@pytest.mark.parametrize("damage", ["empty", "truncated", "flipped", "forged", "swapped", "unreadable"])
def test_a_damaged_entry_is_built_again_and_never_unpickled(damage, cache):
    text, name = each("x[i] * np.float32(3.0)")
    path = Path(compile_cpu(text, name, F32).path).with_suffix(".bin")
    content = path.read_bytes()
    if damage == "unreadable":
        path.unlink()
        path.mkdir()
    elif damage == "swapped":  # whole and signed, but another kernel's
        other, other_name = each("x[i] * np.float32(5.0)")
        path.write_bytes(Path(compile_cpu(other, other_name, F32).path).with_suffix(".bin").read_bytes())
    else:
        path.write_bytes({"empty": b"", "truncated": content[:-100], "forged": content[:32] + pickle.dumps(Bomb()),
                          "flipped": content[:-50] + bytes([content[-50] ^ 1]) + content[-49:]}[damage])
    compiler.forget_code()
    again = compile_cpu(text, name, F32)
    assert again.origin == "compiled" and not EXPLOSIONS
    x, y = np.ones(4, np.float32), np.empty(4, np.float32)
    again.function(0, 4, x, y)
    assert (y == 3).all()
    if damage != "unreadable":
        compiler.forget_code()
        assert compile_cpu(text, name, F32).origin == "disk"


def test_the_text_on_disk_is_never_executed(cache):
    text, name = each("x[i] + np.float32(1.0)")
    path = Path(compile_cpu(text, name, F32).path)
    path.write_text("raise SystemExit('the text on disk was run')")
    path.with_suffix(".bin").unlink()
    compiler.forget_code()
    assert compile_cpu(text, name, F32).origin == "compiled" and path.read_text() == text


def test_another_users_secret_makes_entries_foreign(cache):
    text, name = each("x[i] + np.float32(2.0)")
    compile_cpu(text, name, F32)
    (cache / "secret").write_bytes(bytes(32))
    store._secret.cache_clear()
    compiler.forget_code()
    assert compile_cpu(text, name, F32).origin == "compiled"
    store._secret.cache_clear()


@pytest.mark.parametrize("setting", ["0", "off"])
def test_switched_off(setting, monkeypatch, tmp_path):
    monkeypatch.setenv("MINISITCH_CACHE", setting)
    monkeypatch.chdir(tmp_path)
    made = compile_cpu(*each("x[i]"), F32)
    assert made.origin == "compiled" and made.path.startswith("<minisitch") and not list(tmp_path.iterdir())


def refused(folder):
    """What ``_checked_folder`` says of a folder it will not use."""
    store._checked_folder.cache_clear()
    store._secret.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert store._checked_folder(str(folder)) is None
    store._checked_folder.cache_clear()
    return " ".join(str(w.message) for w in caught)


def test_folders_that_others_can_write_are_refused(tmp_path, monkeypatch):
    if not hasattr(os, "geteuid"):
        return
    tmp_path.chmod(0o777)
    assert "open to other users" in refused(tmp_path)
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "belongs to user" in refused(tmp_path)
    monkeypatch.undo()
    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / "secret").chmod(0o644)
    assert "open to other users" in refused(tmp_path)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "secret").write_bytes(b"short")
    assert "damaged" in refused(tmp_path)


def test_a_folder_that_cannot_be_made_is_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    assert refused(tmp_path / "file" / "cache") == ""
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path / "file" / "cache"))
    assert compile_cpu(*each("x[i]"), F32).origin == "compiled"


def test_a_disk_that_fills_up_later_is_no_error(cache):
    compile_cpu(*each("x[i]"), F32)

    with no_file_may_grow():
        assert compile_cpu(*each("x[i] - x[i]"), F32).origin == "compiled"


def test_a_full_cache_forgets_what_was_not_used(cache, monkeypatch):
    monkeypatch.setattr(store, "KEEP", 3)
    requests = [Request(*each(f"x[i] * np.float32({n})"), F32) for n in range(4)]
    paths = [Path(compile_cpu(r.text, r.name, r.dtypes).path) for r in requests]
    for age, path in enumerate(paths):
        os.utime(path.with_suffix(".bin"), (time.time() - 1000 + age,) * 2)
    (cache / "left.tmp").write_bytes(b"half a kernel")
    os.utime(cache / "left.tmp", (time.time() - 9999,) * 2)
    compiler.forget_code()
    compile_cpu(requests[0].text, requests[0].name, F32)  # used again: the youngest now
    store._forget_old.cache_clear()
    store._forget_old(cache)
    assert [p.exists() for p in paths] == [p.with_suffix(".bin").exists() for p in paths] == [True, False, False, True]
    assert (cache / "secret").exists() and not (cache / "left.tmp").exists()


# ---------------------------------------------------------------- many at once


def test_threads_share_one_compilation():
    text, name = each("x[i] * x[i]")
    made = []
    users = [threading.Thread(target=lambda: made.append(compile_cpu(text, name, F32))) for _ in range(8)]
    for user in users:
        user.start()
    for user in users:
        user.join(60)
    assert sorted(m.origin for m in made) == ["compiled"] + ["memory"] * 7
    assert len({m.code for m in made}) == 1


def test_many_processes_meet_in_one_new_folder(tmp_path):
    code = ("from minisitch.runtime.cpu.compile import compile_cpu\nfrom minisitch.runtime.store import folder, _secret\nimport numpy as np\n"
            "text = 'def k(first, last, x, y):\\n    for i in range(first, last):\\n        y[i] = x[i] + x[i]\\n'\n"
            "k = compile_cpu(text, 'k', ('float32', 'float32'))\nx = np.ones(3, np.float32); y = np.empty_like(x)\n"
            "k.function(0, 3, x, y); assert (y == 2).all()\nprint(_secret(folder()).hex())")
    environment = {**os.environ, "MINISITCH_CACHE": str(tmp_path / "new"), "PYTHONPATH": str(ROOT)}
    running = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
               for _ in range(2)]
    secrets = {process.communicate(timeout=60)[0] for process in running}
    assert all(p.returncode == 0 for p in running) and len(secrets) == 1
    files = [path for path in (tmp_path / "new").iterdir() if path.is_file()]
    # the secret; a text and its machine code; the text of what starts it, which Numba keeps, and the signature of that
    assert len(files) == 5


def test_compile_many_compiles_each_once_and_says_which(monkeypatch):
    requests = [Request(*each(f"x[i] + np.float32({n})"), F32) for n in range(3)]
    seen = []
    monkeypatch.setattr(compiler, "now", seen.append)
    made = compile_many([*requests, requests[0]])
    assert [m.request for m in made] == [*requests, requests[0]] and made[3] is made[0]
    assert seen == [f"compiling kernel {n} of 3" for n in (1, 2, 3)]
    for n, kernel in enumerate(made[:3]):
        x, y = np.zeros(1, np.float32), np.empty(1, np.float32)
        kernel.function(0, 1, x, y)
        assert y[0] == n


@pytest.mark.parametrize("killed", [False, True])
def test_many_kernels_are_compiled_in_two_processes(killed, monkeypatch, tmp_path):
    """What the other process compiles comes from the cache; if it dies, this one compiles all that is left."""
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path))
    monkeypatch.setattr(compiler, "elsewhere", compiler.Elsewhere())  # it has compiled nothing yet
    monkeypatch.setattr(compiler, "MANY", 4)
    asked, beside = [], compiler.elsewhere.compile

    def compile_beside(request, folder):
        asked.append(request)
        beside(request, folder)
        if killed and compiler.elsewhere.process:
            compiler.elsewhere.process.kill()
    monkeypatch.setattr(compiler.elsewhere, "compile", compile_beside)
    requests = [Request(*each(f"x[i] * np.float32({n}) + np.float32(0.{killed:d}5)"), F32) for n in range(12)]
    made = compile_many(requests)
    assert asked and asked == requests[:-len(asked) - 1:-1], "from the end"
    assert {m.origin for m in made} == {"compiled", "disk"}
    assert len(list(tmp_path.glob("*.bin"))) >= len(requests)
    for n, kernel in enumerate(made):
        x, y = np.ones(1, np.float32), np.empty(1, np.float32)
        kernel.function(0, 1, x, y)
        assert y[0] == n + np.float32(f"0.{killed:d}5")
    for _ in range(100):  # it ends by itself: an idle process would keep 100 MB
        time.sleep(0.05 * (compiler.elsewhere.process is not None))
    assert compiler.elsewhere.process is None


# ---------------------------------------------------------------- speed, and what is not imported


def test_a_load_from_disk_is_quick():
    compile_cpu(SOFTMAX, "softmax", F32)
    times = []
    for _ in range(5):
        compiler.forget_code()
        began = time.process_time()
        assert compile_cpu(SOFTMAX, "softmax", F32).origin == "disk"
        times.append(time.process_time() - began)
    assert min(times) < 0.05  # 3 ms when nothing else runs


def test_numba_is_imported_by_the_first_compilation_only():
    code = ("import sys, minisitch.runtime.cpu.compile, minisitch.runtime.cpu.math, minisitch.runtime.cpu.workers\n"
            "minisitch.runtime.cpu.compile.load_text('def k(first, last, x): x[0] = exp_f32(x[0])', 'k')\n"
            "assert 'numba' not in sys.modules and 'llvmlite' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_kernels_load_and_compile_in_one_process(tmp_path, monkeypatch):
    code = ("import sys, numpy as np\nfrom minisitch.runtime.cpu.compile import compile_cpu\n"
            "text = 'def k(first, last, x, n, y):\\n    t = np.empty(1 << 15, np.float64)\\n    for i in range(first, last):\\n'\n"
            "text += '        t[i] = x[i]\\n        y[i] = math.pow(t[i], 2.5) + math.sin(x[i]) + n[i] // 3\\n'\n"
            "x, n, y = np.arange(1.0, 9.0), np.arange(8) - 4, np.zeros(8)\n"
            "x.flags.writeable = False\n"
            "for name, origin in ('k', sys.argv[1]), ('later', sys.argv[2]):\n"
            "    k = compile_cpu(text.replace('def k', f'def {name}'), name, ('float64', 'int64', 'float64'))\n"
            "    y[:] = 0; k.function(0, 8, x, n, y)\n"
            "    np.testing.assert_allclose(y, x ** 2.5 + np.sin(x) + n // 3); assert k.origin == origin\n"
            "    assert sys.getrefcount(x) == 2, 'nothing holds on to arrays'\n"
            "    try: k.function(0, 8, 'no array', n, y)\n"
            "    except TypeError as error: assert 'unbox' in str(error)\n"
            "    else: raise AssertionError('it took a string for an array')\n")
    monkeypatch.setenv("MINISITCH_CACHE", str(tmp_path / "new"))
    compiler._start.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["here", "compiled", "compiled"])
        exec(code.replace("'later'", "'sooner'"), {})
    subprocess.run([sys.executable, "-c", code, "disk", "compiled"], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("damage", [b"", b"damaged"])
def test_what_starts_kernels_is_compiled_again_where_the_disk_is_damaged(damage, cache):
    text, name = each("x[i] * np.float32(3.0)")
    for _ in range(2):
        compiler._start.cache_clear()
        x, y = np.ones(4, np.float32), np.empty(4, np.float32)
        compile_cpu(text, name, F32).function(0, 4, x, y)
        assert (y == 3).all()
        kept = [path for path in (cache / "__pycache__").iterdir() if path.suffix in (".nbc", ".nbi")]
        assert kept
        for path in kept:
            path.write_bytes(damage)


def test_what_starts_kernels_is_kept_only_where_nobody_else_may_write(cache):
    cache.mkdir(mode=0o700)
    cache.chmod(0o770)
    compiler._start.cache_clear()
    compile_cpu(*each("x[i]"), F32)
    compiler._start.cache_clear()
    assert not (cache / "__pycache__").exists()


def test_code_that_calls_what_is_not_there_is_refused():
    import llvmlite.binding as llvm

    text = "declare i64 @nobody_defines_this()\ndefine i64 @f() {\n  %r = call i64 @nobody_defines_this()\n  ret i64 %r\n}\n"
    code = object_code._machine().emit_object(llvm.parse_assembly(text))
    with pytest.raises(RuntimeError, match="nobody_defines_this"):
        object_code.Code(object_code.Image("f", ("nobody_defines_this",), code))


def test_what_numba_is_told_is_part_of_the_key(monkeypatch):
    request = Request(*each("x[i]"), F32)
    before = compiler._key(request)
    assert compiler._key(request) == before and not object_code.is_switched_off()
    monkeypatch.setattr(__import__("numba").config, "LOOP_VECTORIZE", 0)
    assert compiler._key(request) != before


def test_without_jit_the_text_runs_as_it_is():
    code = ("import numpy as np\nfrom minisitch.runtime.cpu.compile import compile_cpu\n"
            "k = compile_cpu('def k(first, last, x): x[0] = exp_f32(x[0])', 'k', ('float32',)).function\n"
            "x = np.zeros(1, np.float32); k(0, 1, x); assert x[0] == 1")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "MINISITCH_CACHE": "0", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
