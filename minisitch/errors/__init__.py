"""The one exception family. Every error the package raises on purpose is a ``MinisitchError``, but for those of NumPy."""


class MinisitchError(Exception):
    """Base of all errors raised on purpose; the message names what was seen and the next step."""


class GraphError(MinisitchError):
    """A graph breaks a rule that passes rely on."""


class TraceError(MinisitchError, TypeError):
    """A NumPy program does something that cannot be recorded; names the user's line."""


class PlanError(MinisitchError):
    """A fusion plan loses, doubles or mis-orders an operation."""


class KernelError(MinisitchError):
    """A loop program breaks a rule: a read before a write, overlapping live buffers, an uneven barrier."""


class KernelBug(MinisitchError):
    """The stepper saw emitted text misbehave: a race, a divergent barrier, an unwritten read ...

    ``rule`` is the name that the message begins with. ``line`` (of the text, from 1; 0: none) and ``thread`` ("block 0 thread 3")
    are the last that the message quotes: the access or the thread that was refused.
    """

    def __init__(self, message: str, rule: str = "", line: int = 0, thread: str = ""):
        super().__init__(message)
        self.rule, self.line, self.thread = rule or message.partition(":")[0], line, thread


class DeviceError(MinisitchError):
    """The wanted target is not on this machine, or too small for the kernel."""


class PipelineError(MinisitchError):
    """A pipeline of stages cannot run: its stages would wait for each other, or not all of their blocks are resident."""


class LoopWarning(MinisitchError, UserWarning):
    """A Python loop is being unrolled into a graph of thousands of operations; names the loop's line."""


class BackgroundWarning(MinisitchError, UserWarning):
    """Compiling in the background failed; the unfused plan goes on serving calls."""
