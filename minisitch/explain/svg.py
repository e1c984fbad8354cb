"""What pictures are made of: SVG text without scripts, other files or ids.

In:  shapes and words. Out: a ``Picture``, which a notebook shows. The same input gives equal text.

Lines and words take the colour of the page around them. A picture that stands alone, in a file or
an ``<img>``, has paper and ink of its own, for light screens and for dark ones: only there is
``svg`` the root of the document.
"""

from collections.abc import Iterable
from html import escape
from math import hypot
from pathlib import Path

PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#9c755f", "#edc948", "#ff9da7", "#8cd17d")
# One colour a meaning, in all pictures: what is read, written, both, and what makes threads wait.
READ, WRITTEN, BOTH, WAIT = PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[4]
SIZE, LINE_HEIGHT, MARGIN = 12, 17, 8
WIDTH = 480  # of a picture whose contents leave it open: readable on a telephone, too
CHARACTER = 7.3  # the width of a letter of that size, in the widest of the usual fonts
STYLE = ("<style>svg:root{color:#1f2933}svg:root>.paper{fill:#fff}@media(prefers-color-scheme:dark)"
         "{svg:root{color:#e6e8eb}svg:root>.paper{fill:#14181d}}</style>")


class Picture(str):
    """The text of an SVG picture. A notebook draws it; ``save`` writes it to a file."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str) -> None:
        """Write the picture to a file that every browser opens."""
        Path(path).write_text(self + "\n", encoding="utf-8")


def svg(width: float, height: float, body: Iterable[str], title: str) -> Picture:
    """Put drawings together. ``title`` is for screen readers."""
    return Picture(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" role="img" aria-label="{escape(title)}" font-size="{SIZE}" '
        'fill="currentColor" font-family="ui-monospace,Menlo,Consolas,monospace">'
        f'<title>{escape(title)}</title>{STYLE}'
        f'<rect class="paper" width="100%" height="100%" fill="none"/>{"".join(body)}</svg>')


def tipped(tag: str, tooltip: str, name: str) -> str:
    """An element called ``name`` from its opening ``tag``, with words for who points at it."""
    return tag + f"<title>{escape(tooltip)}</title>" * bool(tooltip) + f"</{name}>"


def text(x: float, y: float, words: str, anchor: str = "start", *, size: int = SIZE,
         bold: bool = False, faint: bool = False) -> str:
    """One line of text. ``y`` is its base line."""
    extra = f' font-size="{size}"' * (size != SIZE)
    extra += ' font-weight="bold"' * bold + ' fill-opacity="0.7"' * faint
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, colour: str = "", tooltip: str = "",
              extra: str = "") -> str:
    """One rectangle, filled lightly so that text stays readable on light and dark pages."""
    fill = f'"{colour}" fill-opacity="0.28" stroke="{colour}"' if colour else '"none" stroke="currentColor"'
    return tipped(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                  f'fill={fill}{extra}>', tooltip, "rect")


def dot(x: float, y: float, colour: str, tooltip: str = "") -> str:
    """A filled circle."""
    return tipped(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}">', tooltip, "circle")


def path(commands: str, colour: str = "currentColor", *, width: float = 1.3, tooltip: str = "",
         dashed: bool = False) -> str:
    """A line along ``commands``, which are those of SVG's ``d``."""
    extra = ' stroke-dasharray="4 3"' * dashed
    return tipped(f'<path d="{commands}" fill="none" stroke="{colour}" stroke-width="{width:g}"{extra}>',
                  tooltip, "path")


def line(x: float, y: float, to_x: float, to_y: float, colour: str = "currentColor", *,
         width: float = 1.3, dashed: bool = False) -> str:
    """A straight line."""
    return path(f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}", colour, width=width, dashed=dashed)


def head(x: float, y: float, from_x: float, from_y: float, colour: str = "currentColor") -> str:
    """The head of an arrow that comes from one point and ends at another."""
    length = hypot(x - from_x, y - from_y) or 1.0
    dx, dy = (x - from_x) / length, (y - from_y) / length
    corners = [(x, y), (x - 6 * dx - 3 * dy, y - 6 * dy + 3 * dx), (x - 6 * dx + 3 * dy, y - 6 * dy - 3 * dx)]
    return f'<path d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in corners)}Z" fill="{colour}"/>'


def arrow(x: float, y: float, to_x: float, to_y: float, colour: str = "currentColor") -> str:
    """A straight arrow."""
    return line(x, y, to_x, to_y, colour) + head(to_x, to_y, x, y, colour)


def wide(words: str, size: int = SIZE) -> float:
    """The width of a line of text."""
    return len(words) * CHARACTER * size / SIZE
