"""The exception family: every error the package raises on purpose is a ``MinisitchError``.

The exceptions are errors that NumPy itself would raise.
"""

from typing import Any


class MinisitchError(Exception):
    """Base of all errors raised on purpose. The message names what was seen and the next step."""


def needs(form: str, *given: tuple[object, Any]) -> None:
    """Refuse arguments of another kind than a function takes: pairs of a value and its kind.

    ``form`` shows the call.

    Before:  evaluate(None, [x]) raises AttributeError: 'NoneType' object has no attribute 'nodes'
    After:   MinisitchError: evaluate got NoneType, list; write evaluate(graph, [x, y])
    """
    if not all(isinstance(*each) for each in given):
        seen = ", ".join(type(value).__name__ for value, _ in given)
        raise MinisitchError(f"{form.partition('(')[0]} got {seen}; write {form}")


class GraphError(MinisitchError):
    """A graph breaks a rule that passes rely on."""


class TraceError(MinisitchError, TypeError):
    """A NumPy program does something that cannot be recorded. Names the user's line."""


class PlanError(MinisitchError):
    """A fusion plan loses, doubles or mis-orders an operation."""


class KernelError(MinisitchError):
    """A loop program breaks a rule: read before write, overlapping live buffers, uneven barrier."""


class KernelBug(MinisitchError):
    """The stepper saw kernel text misbehave: a race, a divergent barrier, an unwritten read ...

    ``rule`` is the name that the message begins with. ``line`` is the line of the text, from 1, or
    0 if there is none. ``thread`` reads "block 0 thread 3". Both belong to the access that was
    refused. ``kernel`` is the kernel's name. ``places`` are all lines that the message quotes, each
    with what happened there. ``seen`` is what is wrong, and ``advice`` the part of the message that
    says what to write.
    """

    def __init__(self, message: str, rule: str = "", line: int = 0, thread: str = ""):
        super().__init__(message)
        self.rule = rule or message.partition(":")[0]
        self.line, self.thread = line, thread
        self.kernel, self.seen, self.advice = "", "", ""
        self.places: tuple[tuple[int, str], ...] = ()


class PassError(MinisitchError):
    """A pass fails, or a function that ``swapped`` has put in the place of one breaks a property.

    ``name`` is the name of the pass. ``rule`` is the name of the property, which ends the message
    in brackets. For a pass that ``kernel_pass`` registered it is ``raised`` or ``returned``.
    """

    def __init__(self, message: str, name: str, rule: str):
        super().__init__(message)
        self.name, self.rule = name, rule


class DeviceError(MinisitchError):
    """The wanted target is not on this machine, or it is too small for the kernel."""


class PipelineError(MinisitchError):
    """A pipeline cannot run: its stages wait for each other, or not all its blocks are resident."""


class CheckError(MinisitchError):
    """A jitted function gives something else than the plain function (``jit(f, check=True)``)."""


class LoopWarning(MinisitchError, UserWarning):
    """A Python loop is unrolled into thousands of operations, or compiles anew in each round."""
