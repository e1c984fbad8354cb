"""A matrix product as CUDA text: tiles of the operands in shared memory, sums in registers.

In:  where the matrices lie, and a ``Tile``. Out: lines of text.

For its tile of the result, by default 64 x 64 with 256 threads, a block does this:

    for first_inner in range(0, 1024, 16):      # along the axis that both operands share
        copy a_tile[64, 16], b_tile[16, 64]     # all threads, coalesced; zeros outside
        barrier
        for inner in range(16):                 # 8 loads from shared memory for 16 products
            a0..a3, b0..b3 = ...
            sum0_0 += a0 * b0; ... sum3_3 += a3 * b3
        barrier

So an operand's element is read from global memory once a tile, which is 1/64 of once a product.
``Product`` gives the parts of this text, so that a pipeline's stage can add lines: ``declare`` once
a kernel, then ``sums`` and ``stores`` for each tile. All threads of the block take part. The text
uses the name ``thread`` and names in an operand's index. It assigns ``row`` and ``col`` for
``Elements``.

Left out: tensor cores (Numba does not offer them), 16-byte loads, and copies that overlap with
sums. Products that are library calls go to cuBLAS.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ...ops import compute_dtype, itemsize, kind_of


@dataclass(frozen=True)
class Tile:
    """A block's part of a product: ``rows`` x ``cols`` of the result, in steps of ``inner``.

    A thread has ``rows_each`` x ``cols_each`` sums. The default needs 256 threads, and 8.3 kB of
    shared memory in float32.
    """

    rows: int = 64
    cols: int = 64
    inner: int = 16
    rows_each: int = 4
    cols_each: int = 4

    @property
    def threads(self) -> int:
        """The threads of a block. Their rows and columns repeat at equal distances in the tile."""
        return (self.rows // self.rows_each) * self.threads_per_row

    @property
    def threads_per_row(self) -> int:
        return self.cols // self.cols_each


@dataclass(frozen=True)
class Matrix:
    """Where a matrix lies: element (row, col) at ``offset + row * row_step + col * col_step``.

    ``offset`` is an expression in the surrounding text's names. Transposing swaps the steps.
    """

    buffer: str
    dtype: str
    row_step: int
    col_step: int = 1
    offset: str = ""

    def at(self, row: str, col: str) -> str:
        """The text of an element."""
        terms = [self.offset] * bool(self.offset)
        for name, step in ((row, self.row_step), (col, self.col_step)):
            if not step:
                continue  # broadcast: the same element
            whole = f"({name})" if " " in name and step != 1 else name
            terms.append(whole if step == 1 else f"{whole} * {step}")
        return f"{self.buffer}[{' + '.join(terms) or '0'}]"


@dataclass(frozen=True)
class Elements:
    """An operand without matrix layout. ``element`` is the text of one, in ``row`` and ``col``.

    Examples are heads side by side, a transposed reshape, and one number everywhere. Elements are
    copied into shared memory one by one. Only the index takes longer to compute.
    """

    dtype: str
    element: str


@dataclass(frozen=True)
class Product:
    """``rows x inner`` times ``inner x cols`` by the threads of one block.

    ``prefix`` distinguishes the names of several products in one kernel. As in NumPy, integers wrap
    in their dtype, and booleans combine by ``and`` and ``or``.
    """

    rows: int
    cols: int
    inner: int
    a: Matrix | Elements
    b: Matrix | Elements
    tile: Tile = Tile()
    prefix: str = ""

    @property
    def held(self) -> str:
        """The dtype of sums and of shared memory: float32 for float16, int32 for booleans."""
        return "int32" if self.a.dtype == "bool" else compute_dtype(self.a.dtype)

    @property
    def shared_bytes(self) -> int:
        t = self.tile
        return itemsize(self.held) * (t.rows * (t.inner + 1) + t.inner * (t.cols + 1))

    def declare(self) -> Iterator[str]:
        """Lines once a kernel: shared memory, and the thread's place in a tile.

        A row has one extra element, so that a column's elements lie in different banks.
        """
        p, t = self.prefix, self.tile
        yield f"{p}a_tile = cuda.shared.array({t.rows * (t.inner + 1)}, np.{self.held})"
        yield f"{p}b_tile = cuda.shared.array({t.inner * (t.cols + 1)}, np.{self.held})"
        yield f"{p}thread_row = thread // {t.threads_per_row}"
        yield f"{p}thread_col = thread % {t.threads_per_row}"

    def sums(self, first_row: str, first_col: str) -> Iterator[str]:
        """Lines that compute this thread's sums for the tile that begins here."""
        p, t = self.prefix, self.tile
        for i, j in self._each():
            yield f"{p}sum{i}_{j} = np.{self.held}(0)"
        yield f"for {p}first_inner in range(0, {self.inner}, {t.inner}):"
        first_inner = f"{p}first_inner"
        for line in (*self._copy("a_tile", self.a, (t.rows, t.inner), (first_row, first_inner),
                                 (self.rows, self.inner)),
                     *self._copy("b_tile", self.b, (t.inner, t.cols), (first_inner, first_col),
                                 (self.inner, self.cols))):
            yield f"    {line}"
        yield "    cuda.syncthreads()"
        yield f"    for {p}inner in range({t.inner}):"
        for i in range(t.rows_each):
            yield f"        {p}a{i} = {p}a_tile[({self._row(i)}) * {t.inner + 1} + {p}inner]"
        for j in range(t.cols_each):
            yield f"        {p}b{j} = {p}b_tile[{p}inner * {t.cols + 1} + {self._col(j)}]"
        for i, j in self._each():
            yield f"        {self._add(f'{p}sum{i}_{j}', f'{p}a{i}', f'{p}b{j}')}"
        yield "    cuda.syncthreads()"

    def stores(self, c: Matrix, first_row: str, first_col: str) -> Iterator[str]:
        """Lines that store this thread's sums."""
        p, t = self.prefix, self.tile
        for i, j in self._each():
            row, col = f"{p}row{i}", f"{p}col{j}"
            if j == 0:
                yield f"{row} = {first_row} + {self._row(i)}"
            if i == 0:
                yield f"{col} = {first_col} + {self._col(j)}"
            line = f"{c.at(row, col)} = {self._stored(c.dtype, f'{p}sum{i}_{j}')}"
            inside = self._inside((t.rows, t.cols), (row, col), (self.rows, self.cols))
            yield from [f"if {inside}:", f"    {line}"] if inside else [line]

    # ------------------------------------------------------------ parts of lines
    def _each(self) -> Iterator[tuple[int, int]]:
        return ((i, j) for i in range(self.tile.rows_each) for j in range(self.tile.cols_each))

    def _row(self, i: int) -> str:
        """The row of the tile that is this thread's ``i``-th."""
        below = i * (self.tile.rows // self.tile.rows_each)
        return f"{self.prefix}thread_row" + (f" + {below}" if i else "")

    def _col(self, j: int) -> str:
        return f"{self.prefix}thread_col" + (f" + {j * self.tile.threads_per_row}" if j else "")

    def _copy(self, name: str, m: Matrix | Elements, shape: tuple[int, int], first: tuple[str, str],
              limits: tuple[int, int]) -> Iterator[str]:
        """Fill a shared tile with all threads. Neighbouring threads read neighbouring elements."""
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
        padding = f" if {inside} else np.{self.held}(0)" if inside else ""
        yield f"    {p}{name}[{row} * {cols + 1} + {col}] = {loaded}{padding}"

    @staticmethod
    def _inside(shape: tuple[int, int], where: tuple[str, str], limits: tuple[int, int]) -> str:
        """The test that an element is inside the matrix; empty if tiles fit exactly."""
        axes = zip(shape, where, limits, strict=True)
        return " and ".join(f"{at} < {limit}" for size, at, limit in axes if limit % size)

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
