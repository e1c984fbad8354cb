"""What a result looks like at the prompt: as ``print`` shows it, but not longer than a screen or two.

Before:  FusionPlan(graph=Graph(nodes=(Node(id=0, op='input', args=(), type=TensorType(...
After:   # after fuse (auto): 8 nodes -> 1 kernel, 0 library calls
"""

MOST_LINES = 60


def shortened(text: str) -> str:
    """The text, or its first lines and how to see the others."""
    lines = text.splitlines()
    if len(lines) <= MOST_LINES:
        return text
    left = len(lines) - MOST_LINES + 1
    return "\n".join([*lines[:MOST_LINES - 1], f"... {left:,} more lines: print(_) shows all of them"])


class Printed:
    """A base of results that print: at the prompt they show the same, shortened."""

    def __repr__(self) -> str:
        return shortened(str(self))
