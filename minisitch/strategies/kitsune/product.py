"""A matrix product as CUDA text: tiles of both operands go through shared memory, sums stay in registers.

In:  where the matrices lie, and a ``Tile``. Out: lines of text; ``product_text`` makes a whole kernel of them.

What a block does for its tile of the result, 64 x 64 with 256 threads if nothing else is said:

    for first_inner in range(0, 1024, 16):      # along the axis that both operands share
        copy a_tile[64, 16], b_tile[16, 64]     # all threads, coalesced; zeros past the matrices' edges
        barrier
        for inner in range(16):                 # 8 loads from shared memory for 16 products
            a0..a3, b0..b3 = ...
            sum0_0 += a0 * b0; ... sum3_3 += a3 * b3
        barrier

From global memory an operand's element is read once a tile and not once a product: 1/64 of it. ``Product`` gives the
parts, so that a pipeline's stage can have its own lines before and behind: ``declare`` once a kernel, then for every
tile ``sums`` and ``stores``. All threads of the block take part, and no name is expected of the text around but ``thread``
and those in an operand's own index; ``row`` and ``col`` are assigned where an operand is ``Elements``. Left out: tensor
cores (Numba has no way to them), 16-byte loads, copies that overlap with the sums. Where cuBLAS is installed it does a
library call's product; this text is for where it is not, and for inside a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...ops import compute_dtype, itemsize, kind_of


@dataclass(frozen=True)
class Tile:
    """What a block holds at once: ``rows`` x ``cols`` of the result, ``inner`` products deep; a thread has
    ``rows_each`` x ``cols_each`` of its sums. The default takes 256 threads and 8.3 kB of shared memory in float32."""

    rows: int = 64
    cols: int = 64
    inner: int = 16
    rows_each: int = 4
    cols_each: int = 4

    @property
    def threads(self) -> int:
        """A block's threads; each row and each column of them holds every so many-th row and column of the tile."""
        return (self.rows // self.rows_each) * self.threads_per_row

    @property
    def threads_per_row(self) -> int:
        return self.cols // self.cols_each

    def count(self, rows: int, cols: int) -> int:
        """How many tiles cover a result."""
        return -(-rows // self.rows) * -(-cols // self.cols)


SMALL = Tile(32, 32, 16, 2, 2)


def choose_tile(rows: int, cols: int, batch: int = 1, sms: int = 132) -> Tile:
    """The large tile reads less; the small one keeps more multiprocessors busy where the result is small."""
    return Tile() if batch * Tile().count(rows, cols) >= sms else SMALL


@dataclass(frozen=True)
class Matrix:
    """Where a matrix lies in a flat buffer: element (row, col) at ``offset + row * row_step + col * col_step``.

    ``offset`` is an expression in names of the text around; a transposed matrix has its steps swapped.
    """

    buffer: str
    dtype: str
    row_step: int
    col_step: int = 1
    offset: str = ""

    def at(self, row: str, col: str) -> str:
        """The element, as text."""
        terms = [self.offset] * bool(self.offset)
        for name, step in ((row, self.row_step), (col, self.col_step)):
            if not step:
                continue  # broadcast: the same element all along
            whole = f"({name})" if " " in name and step != 1 else name
            terms.append(whole if step == 1 else f"{whole} * {step}")
        return f"{self.buffer}[{' + '.join(terms) or '0'}]"


@dataclass(frozen=True)
class Elements:
    """An operand that is no matrix where it lies: ``element`` is the text of one, in the names ``row`` and ``col``.

    Heads put side by side again, a transposed reshape, a number that is everywhere the same: copied into shared memory one
    by one like any other, only the index takes longer to compute.
    """

    dtype: str
    element: str


@dataclass(frozen=True)
class Product:
    """``rows x inner`` times ``inner x cols`` by the threads of one block. ``prefix`` sets apart the names of several
    products in one kernel. Integers wrap in their dtype, truth values join by ``and`` and ``or``, as NumPy's do."""

    rows: int
    cols: int
    inner: int
    a: Matrix | Elements
    b: Matrix | Elements
    tile: Tile = Tile()
    prefix: str = ""

    @property
    def held(self) -> str:
        """The dtype of sums and of shared memory: float32 for float16, int32 for truth values."""
        return "int32" if self.a.dtype == "bool" else compute_dtype(self.a.dtype)

    @property
    def shared_bytes(self) -> int:
        return itemsize(self.held) * (self.tile.rows * (self.tile.inner + 1) + self.tile.inner * (self.tile.cols + 1))

    def declare(self) -> Iterator[str]:
        """Once a kernel: shared memory, and which part of a tile a thread holds.

        A row has one element more than it needs, so that a column's elements lie in different banks.
        """
        p, t = self.prefix, self.tile
        yield f"{p}a_tile = cuda.shared.array({t.rows * (t.inner + 1)}, np.{self.held})"
        yield f"{p}b_tile = cuda.shared.array({t.inner * (t.cols + 1)}, np.{self.held})"
        yield f"{p}thread_row = thread // {t.threads_per_row}"
        yield f"{p}thread_col = thread % {t.threads_per_row}"

    def sums(self, first_row: str, first_col: str) -> Iterator[str]:
        """Fill this thread's sums for the tile that begins there, each a whole number of tiles from the edge."""
        p, t = self.prefix, self.tile
        for i, j in self._each():
            yield f"{p}sum{i}_{j} = np.{self.held}(0)"
        yield f"for {p}first_inner in range(0, {self.inner}, {t.inner}):"
        first_inner = f"{p}first_inner"
        copies = [*self._copy("a_tile", self.a, (t.rows, t.inner), (first_row, first_inner), (self.rows, self.inner)),
                  *self._copy("b_tile", self.b, (t.inner, t.cols), (first_inner, first_col), (self.inner, self.cols))]
        yield from (f"    {line}" for line in copies)
        yield "    cuda.syncthreads()"
        yield f"    for {p}inner in range({t.inner}):"
        for i in range(t.rows_each):
            yield f"        {p}a{i} = {p}a_tile[({self._row(i)}) * {t.inner + 1} + {p}inner]"
        for j in range(t.cols_each):
            yield f"        {p}b{j} = {p}b_tile[{p}inner * {t.cols + 1} + {self._col(j)}]"
        for i, j in self._each():
            yield f"        {self._add(f'{p}sum{i}_{j}', f'{p}a{i}', f'{p}b{j}')}"
        yield "    cuda.syncthreads()"

    def stores(self, c: Matrix, first_row: str, first_col: str,
               value: Callable[[str, str, str], str] = lambda total, row, col: total) -> Iterator[str]:
        """Write this thread's sums. ``value`` makes text of a sum and its coordinate: what a kernel does with it at once."""
        p, t = self.prefix, self.tile
        for i, j in self._each():
            row, col = f"{p}row{i}", f"{p}col{j}"
            if j == 0:
                yield f"{row} = {first_row} + {self._row(i)}"
            if i == 0:
                yield f"{col} = {first_col} + {self._col(j)}"
            line = f"{c.at(row, col)} = {self._stored(c.dtype, value(f'{p}sum{i}_{j}', row, col))}"
            inside = self._inside((t.rows, t.cols), (row, col), (self.rows, self.cols))
            yield from [f"if {inside}:", f"    {line}"] if inside else [line]

    # ------------------------------------------------------------ parts of lines
    def _each(self) -> Iterator[tuple[int, int]]:
        return ((i, j) for i in range(self.tile.rows_each) for j in range(self.tile.cols_each))

    def _row(self, i: int) -> str:
        """Which row of the tile this thread's ``i``-th is."""
        return f"{self.prefix}thread_row" + (f" + {i * (self.tile.rows // self.tile.rows_each)}" if i else "")

    def _col(self, j: int) -> str:
        return f"{self.prefix}thread_col" + (f" + {j * self.tile.threads_per_row}" if j else "")

    def _copy(self, name: str, m: Matrix | Elements, shape: tuple[int, int], first: tuple[str, str],
              limits: tuple[int, int]) -> Iterator[str]:
        """All threads fill a shared tile; neighbours read neighbours, whichever way a matrix lies, and ``Elements`` row by row."""
        p, (rows, cols) = self.prefix, shape
        at, row, col = f"{p}at", f"{p}tile_row", f"{p}tile_col"
        yield f"for {at} in range(thread, {rows * cols}, {self.tile.threads}):"
        if isinstance(m, Elements) or m.col_step <= m.row_step:
            yield f"    {row}, {col} = {at} // {cols}, {at} % {cols}"
        else:
            yield f"    {row}, {col} = {at} % {rows}, {at} // {rows}"
        where = f"{first[0]} + {row}", f"{first[1]} + {col}"
        if isinstance(m, Elements):
            yield f"    row, col = {where[0]}, {where[1]}"
            where = "row", "col"
        inside = self._inside(shape, where, limits)
        element = m.element if isinstance(m, Elements) else m.at(*where)
        loaded = element if m.dtype == self.held else f"np.{self.held}({element})"
        yield f"    {p}{name}[{row} * {cols + 1} + {col}] = {loaded}" + (f" if {inside} else np.{self.held}(0)" if inside else "")

    @staticmethod
    def _inside(shape: tuple[int, int], where: tuple[str, str], limits: tuple[int, int]) -> str:
        """Whether an element is one of the matrix; empty where tiles cover it exactly."""
        tests = [f"{at} < {limit}" for size, at, limit in zip(shape, where, limits, strict=True) if limit % size]
        return " and ".join(tests)

    def _add(self, total: str, a: str, b: str) -> str:
        if self.a.dtype == "bool":
            return f"{total} |= {a} & {b}"
        if kind_of(self.held) == "int":
            return f"{total} = np.{self.held}({total} + {a} * {b})"
        return f"{total} = cuda.fma({a}, {b}, {total})"

    def _stored(self, dtype: str, value: str) -> str:
        if dtype == "bool":
            return f"{value} != 0"
        return value if dtype == self.held else f"np.{dtype}({value})"


# ---------------------------------------------------------------- a kernel of its own
@dataclass(frozen=True)
class ProductText:
    """A kernel that computes a batch of products and nothing else, ready to compile and to launch."""

    name: str
    text: str
    grid: int
    block: int
    dtypes: tuple[str, ...]  # of a, b and c


def product_text(a: Matrix, b: Matrix, c: Matrix, rows: int, cols: int, inner: int,
                 batch: Sequence[tuple[int, int, int, int]] = (), tile: Tile | None = None,
                 name: str = "product") -> ProductText:
    """``c = a @ b`` for each matrix of a batch, one tile a block.

    ``batch``: for each axis, outermost first, its size and how far apart its matrices are in a, b and c (0: the same one).
    """
    count = math.prod(size for size, *_ in batch)
    tile = tile or choose_tile(rows, cols, count)
    across, tiles = -(-cols // tile.cols), tile.count(rows, cols)
    matrices, lines = [], []
    if count > 1:
        lines.append(f"matrix = cuda.blockIdx.x // {tiles}")
    for position, (letter, m) in enumerate(zip("abc", (a, b, c), strict=True)):
        terms = [m.offset] * bool(m.offset)
        behind = count
        for size, *steps in batch:
            behind //= size
            if steps[position] and size > 1:
                index = f"matrix // {behind} % {size}" if behind > 1 else f"matrix % {size}"
                terms.append(f"{index} * {steps[position]}")
        if terms:
            lines.append(f"{letter}_first = {' + '.join(terms)}")
        matrices.append(Matrix(letter, m.dtype, m.row_step, m.col_step, f"{letter}_first" if terms else ""))
    product = Product(rows, cols, inner, matrices[0], matrices[1], tile)
    tile_number = f"cuda.blockIdx.x % {tiles}" if count > 1 else "cuda.blockIdx.x"
    lines += [f"tile = {tile_number}", f"first_row = tile // {across} * {tile.rows}", f"first_col = tile % {across} * {tile.cols}",
              *product.sums("first_row", "first_col"), *product.stores(matrices[2], "first_row", "first_col")]
    body = ["thread = cuda.threadIdx.x", *product.declare(), *lines]
    text = "\n    ".join([f"def {name}(a, b, c):", *body]) + "\n"
    return ProductText(name, text, count * tiles if rows and cols else 0, tile.threads, (a.dtype, b.dtype, c.dtype))
