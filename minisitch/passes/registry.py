"""The registry of passes: what makes a plain kernel fast, one rewrite at a time.

In:  a ``StitchPlan`` and the names of passes. Out: the ``Kernel`` they make of it, signed by each
(``Kernel.passes``).

A pass rewrites a ``Kernel``. If that is too late for what it does, it rewrites a ``StitchPlan``
before the kernel is scheduled. One pass may do both. The kernel after the last pass is verified.
If it is wrong, the passes run again, and the kernel is verified after each: so the error names the
pass.

    @kernel_pass("mine")
    def mine(kernel: Kernel) -> Kernel: ...

A new file of this package needs an import in ``passes/__init__``. If its pass shall run without
being asked for, it needs a place in ``DEFAULTS``, and a golden text in ``tests/test_passes.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from os.path import dirname
from traceback import walk_tb
from typing import Any, TypeVar

from ..device import Device
from ..errors import KernelError, MinisitchError, PassError, PlanError, needs
from ..errors.nearest import near
from ..kernel import Kernel
from ..kernel.launch import with_launch
from ..kernel.verify import verify_values
from ..schedule import schedule
from ..stitch.compose import compose
from ..stitch.plan import StitchPlan

AnyPass = TypeVar("AnyPass", bound=Callable[[Any], Any])


@dataclass(frozen=True)
class Pass:
    """What one pass rewrites, and how."""

    plan: Callable[[StitchPlan], StitchPlan] | None = None
    kernel: Callable[[Kernel], Kernel] | None = None


PASSES: dict[str, Pass] = {}

# What runs by default on each kind of device, in this order.
DEFAULTS = {
    "gpu": ("share_memory", "share_row_values", "vectorize"),
    "cpu": ("keep_in_output", "share_memory", "share_row_values", "column_sweep", "tile_transpose",
            "block_totals", "nest_loops", "cut_loops", "batch_rows", "windows"),
}


def kernel_pass(name: str, kind: str = "") -> Callable[[AnyPass], AnyPass]:
    """Register a rewrite of kernels under a name. Any module may do so.

    If a pass has nothing to do, it returns the kernel itself. ``kind`` is ``"cpu"`` or ``"gpu"`` if
    the pass is only for kernels of that kind of device.
    """
    return _registering("kernel", name, kind)


def plan_pass(name: str) -> Callable[[AnyPass], AnyPass]:
    """Register a rewrite of stitch plans, which runs before the kernel is scheduled."""
    return _registering("plan", name)


def _registering(what: str, name: str, kind: str = "") -> Callable[[AnyPass], AnyPass]:
    """The decorator that makes a function the rewrite of ``what`` in the pass ``name``."""
    if not isinstance(name, str) or not name:
        raise MinisitchError(f"a pass is registered under a name; write @{what}_pass('mine')")
    if not isinstance(kind, str) or kind not in ("", *DEFAULTS):
        raise MinisitchError(f"no device is of the kind {kind!r}{near(kind, DEFAULTS)}; "
                             'take "cpu", "gpu", or none for both')

    def register(function: AnyPass) -> AnyPass:
        needs("kernel_pass('mine')(function)", (function, Callable))
        ours = name == "default" or any(name in names for names in DEFAULTS.values())
        if ours and function.__module__.partition(".")[0] != __name__.partition(".")[0]:
            raise MinisitchError(f"{name!r} is a pass of this package; "
                                 "register yours under another name")

        def rewrite(value: Any) -> Any:
            return _applied(name, function, value) if kind in ("", value.device.kind) else value
        PASSES[name] = replace(PASSES.get(name, Pass()), **{what: rewrite})
        return function
    return register


PACKAGE = dirname(dirname(__file__))


def _applied(name: str, function: Callable[[Any], Any], value: Kernel | StitchPlan) -> Any:
    """What a pass makes of a kernel or plan.

    Raises PassError if it fails, or returns something else. An error of neither the pass's file nor this package, such
    as one that a signal's handler raises meanwhile, stays what it is.
    """
    try:
        made = function(value)
    except (PassError, PlanError, KernelError):
        raise
    except Exception as raised:
        path = [*walk_tb(raised.__traceback__)][-1][0].f_code.co_filename
        if path != getattr(function, "__code__", _applied.__code__).co_filename and not path.startswith(PACKAGE):
            raised.add_note(f"while the pass {name} ran")
            raise
        said = f"pass {name} raised {type(raised).__name__}: {raised}"
        raise PassError(said, name, "raised") from raised
    if not isinstance(made, type(value)):
        kinds = f"returned {type(made).__name__}, expected a {type(value).__name__}"
        raise PassError(f"pass {name} {kinds}", name, "returned")
    return made


def chosen(passes: str | Sequence[str], device: Device) -> tuple[str, ...]:
    """The names of the passes asked for; ``"default"`` stands for those of the device's kind.

    Before:  ("default", "mine")    After:  ("share_memory", "share_row_values", "vectorize", "mine")

    Raises MinisitchError for a name that is not registered.
    """
    words = (passes,) if isinstance(passes, str) else tuple(passes)
    asked = tuple(name for word in words for name in (DEFAULTS[device.kind] if word == "default" else (word,)))
    for name in asked:
        if name not in PASSES:
            raise MinisitchError(f"unknown pass {name!r}{near(name, PASSES)}; take \"default\", or "
                                 f"a tuple of it and these: {', '.join(sorted(PASSES))}")
    return asked


def idle(name: str, device: Device) -> str:
    """The refusal of a pass that does not run here, and what makes it run.

    Empty if no pass has this name.
    """
    default = " or passes=\"default\"" * (name in DEFAULTS[device.kind])
    if name not in list(PASSES):
        return ""
    return f"the pass {name!r} does not run here; write passes=({name!r},){default}"


def for_target(passes: str | Sequence[str] | None, target: str) -> str | Sequence[str]:
    """The passes asked for. None means the default ones. The target ``step`` shows the plain kernel."""
    if passes is None:
        return () if target == "step" else "default"
    return passes


def kernel_of(plan: StitchPlan, passes: Sequence[str]) -> Kernel:
    """The plan's kernel after the passes.

    First those that rewrite the plan run, then those that rewrite the kernel, each in the given
    order.

    The kernel after the last pass is verified. If it is wrong, the passes run again, and the kernel
    is verified after each. Raises KernelError if a pass breaks the kernel, and PassError if it
    fails. Both name the pass.
    """
    for rewrite in filter(None, (PASSES[name].plan for name in passes)):
        plan = rewrite(plan)
    try:
        return schedule(plan, lambda kernel: reduce(_after, passes, kernel))
    except KernelError:
        schedule(plan, lambda kernel: reduce(_verified_after, passes, verify_values(kernel)))
        raise


def history(kernel: Kernel) -> tuple[Kernel, ...]:
    """The plain kernel, and the kernel after each pass that has signed it."""
    plan = compose(kernel.graph, kernel.device, kernel.plan.composition)
    return tuple(kernel_of(plan, kernel.passes[:k]) for k in range(len(kernel.passes) + 1))


def default_kernel(plan: StitchPlan) -> Kernel:
    """The plan's kernel after the default passes of its device."""
    return kernel_of(plan, DEFAULTS[plan.device.kind])


def _after(kernel: Kernel, name: str) -> Kernel:
    """The kernel after one more pass, which signs it."""
    each = PASSES[name]
    made = each.kernel(kernel) if each.kernel else kernel
    return replace(kernel if made is kernel else with_launch(made), passes=(*kernel.passes, name))


def _verified_after(kernel: Kernel, name: str) -> Kernel:
    try:
        return verify_values(_after(kernel, name))
    except KernelError as refused:
        raise KernelError(f"after the pass {name}: {refused}") from refused
