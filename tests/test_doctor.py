"""The doctor: what it says of machines that are not this one, and that it never falls ill itself."""

import json

import pytest

from minisitch.__main__ import main
from minisitch.runtime import doctor
from minisitch.runtime.doctor import BROKEN, MISSING, OK, Driver, examine

H100 = ("NVIDIA H100 80GB HBM3", 9, 0)
INSTALLED = {"numba-cuda": "0.30.4", "cuda-bindings": "13.5.0", "cuda-core": "1.2.2", "nvidia-nvvm": "13.5.37"}


@pytest.fixture
def machine(monkeypatch):
    """A machine with a driver and packages, as given."""
    def make(driver=None, packages=None, cublas=""):
        packages = {"numba": "0.68.1", "numpy": "2.4.6", "llvmlite": "0.50.0", **(packages or {})}
        monkeypatch.setattr(doctor, "driver", lambda: driver)
        monkeypatch.setattr(doctor, "version", lambda package: packages.get(package, ""))
        monkeypatch.setattr(doctor.cublas, "path", lambda: cublas)
        monkeypatch.setattr(doctor.offline.cuda_compile, "ptx", lambda *text: "")
    return make


def found(what):
    report = examine()
    return next((f for f in report.findings if f.what == what), None), report


def runs(report):
    return {t.name: t.runs for t in report.targets}


def test_a_machine_without_a_gpu_is_healthy(machine):
    machine()
    driver, report = found("NVIDIA driver")
    assert driver.state == MISSING and report.healthy
    assert runs(report) == {"cpu": True, "cuda": False, "step": True, "python": True, "reference": True}


def test_a_machine_with_everything(machine):
    machine(Driver(0, 13000, (H100,)), INSTALLED, cublas="libcublas.so.13")
    gpu, report = found("GPU")
    assert gpu == doctor.Finding("GPU", OK, "NVIDIA H100 80GB HBM3, sm_90") and all(runs(report).values()) and report.healthy
    assert all(f.state == OK for f in report.findings)


@pytest.mark.parametrize(("given", "what", "state", "fix"), [
    (dict(driver=Driver(999, 13000, ())), "NVIDIA driver", BROKEN, "nvidia-smi"),
    (dict(driver=Driver(100, 13000, ())), "GPU", MISSING, "nvidia-smi; is CUDA_VISIBLE_DEVICES set?"),
    (dict(driver=Driver(0, 13000, (H100,))), "numba-cuda", MISSING, doctor.CUDA),
    (dict(driver=Driver(0, 12040, (H100,))), "numba-cuda", MISSING, doctor.CUDA12),
    (dict(driver=Driver(0, 12040, (H100,)), packages=INSTALLED), "driver and compiler", BROKEN, doctor.CUDA12),
    (dict(driver=Driver(0, 11080, (H100,)), packages=INSTALLED), "driver and compiler", BROKEN, "update NVIDIA's driver"),
    (dict(driver=Driver(0, 13000, (("Tesla V100", 7, 0),)), packages=INSTALLED), "GPU", BROKEN, doctor.CUDA12),
    (dict(driver=Driver(0, 13000, (("GTX 1080", 6, 1),)), packages=INSTALLED), "GPU", MISSING, ""),
    (dict(driver=Driver(0, 13000, (H100,)), packages=INSTALLED), "cuBLAS", MISSING, "pip install nvidia-cublas"),
])
def test_each_gap_has_its_command(machine, given, what, state, fix):
    machine(**given)
    finding, report = found(what)
    assert (finding.state, finding.fix) == (state, fix)
    assert report.healthy == (state != BROKEN) and runs(report)["cuda"] == (what == "cuBLAS")


@pytest.mark.parametrize(("bindings", "fix"), [("13.5.0", doctor.CUDA), ("12.9.10", doctor.CUDA12)])
def test_a_clash_that_no_list_foresees(machine, monkeypatch, bindings, fix):
    """NumPy 2.5 beside numba-cuda 0.30, as it was seen."""
    machine(Driver(0, 13000, (H100,)), {**INSTALLED, "cuda-bindings": bindings, "nvidia-nvvm": ""})

    def clash(*text):
        raise AttributeError("module 'numpy' has no attribute 'row_stack'")

    monkeypatch.setattr(doctor.offline.cuda_compile, "ptx", clash)
    compiler, report = found("CUDA compiler")
    assert "AttributeError: module 'numpy' has no attribute 'row_stack'" in compiler.said
    assert (compiler.state, compiler.fix) == (BROKEN, fix) and not runs(report)["cuda"] and not report.healthy


@pytest.mark.parametrize(("error", "state"), [
    (ImportError("Numba needs NumPy 2.4 or less. Got NumPy 2.9."), BROKEN),
    (ModuleNotFoundError("No module named 'numba'", name="numba"), MISSING),
    (ModuleNotFoundError("No module named 'llvmlite'", name="llvmlite"), BROKEN),
])
def test_a_numba_that_cannot_be_imported(machine, monkeypatch, error, state):
    machine()
    real = doctor.importlib.import_module

    def importing(name):
        if name == "numba":
            raise error
        return real(name)

    monkeypatch.setattr(doctor.importlib, "import_module", importing)
    numba, report = found("numba")
    assert numba.state == state and numba.fix.startswith("pip install") and not runs(report)["cpu"]


class Libcuda:
    """What is asked of the driver without any package, by way of ctypes."""

    def __init__(self, code):
        self.code = code

    def cuInit(self, flags):
        return self.code

    def cuDriverGetVersion(self, where):
        where._obj.value = 13000

    def cuDeviceGetCount(self, where):
        where._obj.value = 2

    def cuDeviceGet(self, where, ordinal):
        where._obj.value = ordinal

    def cuDeviceGetName(self, where, length, device):
        where.value = b"NVIDIA H100 80GB HBM3"

    def cuDeviceGetAttribute(self, where, attribute, device):
        where._obj.value = {75: 9, 76: 0}[attribute]


def test_the_driver_is_asked_by_itself(monkeypatch):
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda name: Libcuda(0))
    assert doctor.driver() == Driver(0, 13000, (H100, H100))
    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda name: Libcuda(100))
    assert doctor.driver() == Driver(100, 13000, ())


def test_the_command(machine, capsys):
    machine()
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "missing  NVIDIA driver" in said and "cuda       not here: NVIDIA driver is missing" in said
    assert main(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["healthy"] and {f["what"] for f in data["findings"]} >= {"numba", "kernel cache", "NVIDIA driver", "numba-cuda", "cuBLAS"}
    machine(Driver(999, 13000, ()))
    assert main(["doctor"]) == 1


def test_this_machine(capsys):
    """Whatever it is, the doctor gets to the end, and names every target."""
    main(["doctor"])
    said = capsys.readouterr().out
    assert all(f"\n  {name}" in said for name in ("cpu", "cuda", "step", "python", "reference"))
