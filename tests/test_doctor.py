"""The doctor: what it says of machines that are not this one, and that it never falls ill itself."""

import pytest
from cuda_help import stand_in

from minisitch.__main__ import main
from minisitch.runtime import doctor
from minisitch.runtime.cuda import driver
from minisitch.runtime.doctor import BROKEN, MISSING, OK, Finding, examine

NUMBA = {"numba": "0.68.1", "numpy": "2.4.6", "llvmlite": "0.50.0"}
INSTALLED = {"numba-cuda": "0.30.4", "cuda-bindings": "13.5.0"}


@pytest.fixture
def machine(monkeypatch):
    """A machine with packages as given, and with a GPU behind a stand-in for the bindings."""
    with stand_in(monkeypatch) as gpu:
        def make(packages=None, cublas="", has_driver=True):
            version = {**NUMBA, **(packages or {})}
            for module in (doctor, driver):
                monkeypatch.setattr(module, "version", lambda package: version.get(package, ""))
            monkeypatch.setattr(doctor, "has_driver", lambda: has_driver)
            monkeypatch.setattr(doctor.cublas, "path", lambda: cublas)
            monkeypatch.setattr(doctor.offline.cuda_compile, "ptx", lambda *text: "")
            return gpu
        yield make


def found(what):
    return next((f for f in examine() if f.what == what), None)


def runs():
    """The targets that run here, by the report."""
    return {line.split()[0] for line in doctor.report(examine()).splitlines() if " here" in line and "not here" not in line}


def test_a_machine_without_a_gpu_is_healthy(machine):
    machine(has_driver=False)
    assert found("cuBLAS").fix == "with an NVIDIA GPU: pip install nvidia-cublas"
    assert found("NVIDIA driver").state == MISSING and all(f.state != BROKEN for f in examine())
    assert runs() == {"cpu", "step", "python", "reference"}


def test_a_machine_with_everything(machine):
    machine(INSTALLED, cublas="libcublas.so.13")
    assert found("GPU") == Finding("GPU", OK, "Fake GPU, sm_90") and {f.what for f in examine() if f.state != OK} == {"PyTorch"}
    assert runs() == {"cpu", "cuda", "step", "python", "reference"}


@pytest.mark.parametrize(("gpu", "packages", "what", "state", "said"), [
    ({"cuInit": 100}, INSTALLED, "GPU", BROKEN, "check nvidia-smi and CUDA_VISIBLE_DEVICES"),
    ({}, {}, "numba-cuda", MISSING, f"with an NVIDIA GPU: {doctor.CUDA}; "),
    ({}, {}, "numba-cuda", MISSING, "without one, to see machine code: pip install 'minisitch[offline-cuda]'"),
    ({}, {**INSTALLED, "cuda-bindings": "14.0.0"}, "GPU", BROKEN, f"the compiler is of 14 update NVIDIA's driver, or {doctor.CUDA12}"),
    ({75: 7}, INSTALLED, "GPU", BROKEN, doctor.CUDA12),
    ({75: 6}, INSTALLED, "GPU", BROKEN, "kernels need sm_70 or later"),
    ({}, INSTALLED, "cuBLAS", MISSING, "pip install nvidia-cublas"),
])
def test_each_gap_has_its_command(machine, gpu, packages, what, state, said):
    made = machine(packages)
    made.fails |= {name: code for name, code in gpu.items() if isinstance(name, str)}
    made.attributes |= {name: value for name, value in gpu.items() if isinstance(name, int)}
    finding = found(what)
    assert finding.state == state and said in f"{finding.said} {finding.fix}"
    assert ("cuda" in runs()) == (what == "cuBLAS")


@pytest.mark.parametrize(("bindings", "fix"), [("13.5.0", doctor.CUDA), ("12.9.10", doctor.CUDA12)])
def test_a_clash_that_no_list_foresees(machine, monkeypatch, bindings, fix):
    """NumPy 2.5 beside numba-cuda 0.30, as it was seen."""
    machine({**INSTALLED, "cuda-bindings": bindings})

    def clash(*text):
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setattr(doctor.offline.cuda_compile, "ptx", clash)
    compiler = found("CUDA compiler")
    assert "AttributeError: module 'numpy' has no attribute 'row_stack'" in compiler.said
    assert (compiler.state, compiler.fix) == (BROKEN, fix) and "cuda" not in runs()


@pytest.mark.parametrize(("error", "state"), [
    (ImportError("Numba needs NumPy 2.4 or less. Got NumPy 2.9."), BROKEN),
    (ModuleNotFoundError("No module named 'numba'", name="numba"), MISSING),
    (ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite"), BROKEN),
])
def test_a_numba_that_cannot_be_imported(machine, monkeypatch, error, state):
    machine(has_driver=False)
    real = doctor.importlib.import_module

    def importing(name):
        if name == "numba":
            raise error
        return real(name)

    monkeypatch.setattr(doctor.importlib, "import_module", importing)
    numba = found("numba")
    assert numba.state == state and numba.fix.startswith("pip install") and "cpu" not in runs()


def test_the_command(machine, capsys):
    gpu = machine(has_driver=False)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "missing  NVIDIA driver" in said and "cuda       not here: NVIDIA driver is missing" in said
    machine(INSTALLED).fails["cuInit"] = 100
    driver.bindings.cache_clear()
    assert gpu.fails and main(["doctor"]) == 1


def test_this_machine(capsys):
    """Whatever it is, the doctor gets to the end, and names every target."""
    main(["doctor"])
    said = capsys.readouterr().out
    assert all(f"\n  {name}" in said for name in ("cpu", "cuda", "step", "python", "reference"))
