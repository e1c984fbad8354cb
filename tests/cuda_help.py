"""What fixtures of the tests of the launch path share: a fake GPU in place of the bindings, or below the real ones."""

import contextlib
import gc
import importlib.machinery
import sys
import types
from dataclasses import dataclass

import fake_cuda

from minisitch.runtime import steps
from minisitch.runtime.cuda import driver as cuda_driver
from minisitch.runtime.cuda import kernel as cuda_kernel
from minisitch.runtime.cuda import link as cuda_link
from minisitch.runtime.cuda import memory as cuda_memory
from minisitch.strategies.kitsune.product import Product

NAMES = [*fake_cuda.FUNCTIONS, "CUresult", "CUstream_flags", "CUevent_flags", "CUdevice_attribute"]


def package(name):
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    return made


@contextlib.contextmanager
def forgotten():
    """Nothing that is known of a device outlives the block, and nothing known before is known in it."""
    _forget()
    gc.freeze()  # what is there already need not be searched below: a second for each test
    yield
    gc.collect()  # sessions hold memory, and die late
    gc.unfreeze()
    _forget()


def _forget():
    for cached in (cuda_driver.bindings, cuda_driver.architecture, cuda_driver.this_gpu, cuda_kernel._loaded):
        cached.cache_clear()
    cuda_memory._free.clear()
    steps.forget_launches()


@contextlib.contextmanager
def stand_in(monkeypatch):
    """A GPU that stands in for the bindings and the compiler: the launch path on any machine."""
    made = fake_cuda.Gpu()
    driver = types.ModuleType("cuda.bindings.driver")
    for name in NAMES:
        setattr(driver, name, getattr(made, name))
    for name, module in {"cuda": package("cuda"), "cuda.bindings": package("cuda.bindings"), driver.__name__: driver}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(cuda_link, "cubin", made.cubin)
    with forgotten():
        yield made


@dataclass(frozen=True)
class ProductText:
    """A kernel that computes one product, a tile a block."""

    name: str
    text: str
    grid: int
    block: int
    dtypes: tuple[str, ...]


def product_text(a, b, c, rows, cols, inner, tile):
    """``c = a @ b``, of matrices in buffers named a, b and c."""
    across, down = -(-cols // tile.cols), -(-rows // tile.rows)
    product = Product(rows, cols, inner, a, b, tile)
    body = ["thread = cuda.threadIdx.x", *product.declare(), "tile = cuda.blockIdx.x", f"first_row = tile // {across} * {tile.rows}",
            f"first_col = tile % {across} * {tile.cols}", *product.sums("first_row", "first_col"),
            *product.stores(c, "first_row", "first_col")]
    return ProductText("product", "\n    ".join(["def product(a, b, c):", *body]) + "\n", across * down, tile.threads,
                       (a.dtype, b.dtype, c.dtype))
