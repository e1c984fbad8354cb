"""Faults that tests must find: each is put into a copy of the package, and its tests are run there.

    python tools/mutants.py --jobs 2            # all, about three seconds each
    python tools/mutants.py windows generators  # those whose description has one of these words

Prints one line a mutant, with what its test says. The exit code is 1 if the tests of one pass, or fail only
because the mutant's text has names that are gone. ``tests/test_layers.py`` holds
that every mutant has a place in the package. So a change that moves the place changes the mutant.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STALE = ("NameError", "UnboundLocalError", "AttributeError")  # what a text with names that are gone raises
COPIED = ("minisitch", "tests", "tools", "benchmarks", "docs", "tutorials", "pyproject.toml", "README.md")
Constant = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Mutant:
    """One fault.

    ``edits`` has pairs of a place and a text. A place is ``fuse.py:function``, ``fuse.py:Class.method``
    or ``fuse.py:CONSTANT``. The text is the function's new body, or the constant's new value. A last
    line ``...`` of a body stands for the old body.
    ``tests`` are arguments of pytest. At least one of these tests must fail.
    """

    fault: str
    edits: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


def mutant(fault: str, tests: str, *edits: str) -> Mutant:
    """A mutant whose ``edits`` are ``place text place text ...``."""
    pairs = tuple(zip(edits[::2], edits[1::2], strict=True))
    return Mutant(fault, pairs, tuple(f"tests/{test}" for test in tests.split()))


CLAMPED = """
(value, position), guard = key, self.loop.pulled.guards[key] or ()
name, dtype = self.names.fresh(value), self.layout.buffers[buffer].dtype
self._emit(Load(name, buffer, offset, guard, not guard, dtype, value), position)
return name"""
BLIND = """
ends = [*range(0, len(graph), most), len(graph)]
return [range(a, b) for a, b in zip(ends, ends[1:])]"""
BY_RECIPROCAL = """
if stmt.op == "div":
    return f"{stmt.args[0]} * (np.float32(1) / {stmt.args[1]})"
..."""
LOSES_ONE = """
members = sorted(body.origin[m] for m in pattern.members if body.graph[m].op != "input")
outputs = sorted(body.origin[o] for o in pattern.outputs)[:-1 if len(members) > 20 else None]
return replace(pattern, members=tuple(members), outputs=tuple(outputs))"""

MUTANTS = (
    # ------------------------------------------------------------ bits
    mutant("signed overflow is left undefined",
           "test_right_bits.py::test_programs_of_each_kind_have_numpys_bits test_right_wrap.py",
           "runtime/cpu/compile.py:wrapping", "return node"),
    mutant("float16 is kept wide between operations",
           "test_right_bits.py::test_programs_of_each_kind_have_numpys_bits "
           "test_right_half.py::test_each_operation_rounds",
           "kernel/text.py:Printer.rounded_half", "return text"),
    mutant("a quotient is a product with the reciprocal",
           "test_right_bits.py::test_programs_of_each_kind_have_numpys_bits",
           "kernel/text.py:Printer._computed", BY_RECIPROCAL),
    mutant("floats become integers by the rule of C",
           "test_right_cast.py::test_floats_become_integers_as_numpy_has_it",
           "kernel/text.py:Printer.whole_number",
           "return OPS['cast'].cpu['int'].format(name, T=f'np.{to}')"),
    mutant("nothing is asked about values that NumPy refuses",
           "test_right_cast.py::test_integers_to_negative_powers",
           "trace/ufuncs.py:guard", "return None"),
    mutant("every sum is short",
           "test_right_long_sum.py::test_a_long_row_of_tenths_on_the_cpu "
           "test_right_long_sum.py::test_a_long_row_of_tenths_in_cuda_text",
           "kernel/statements.py:LONG_SUM, LONG_SUM_OF_A_CORE", "1 << 40, 1 << 40"),
    # ------------------------------------------------------------ the outside of a program
    mutant("arrays of the outside take writes",
           "test_trace_runs.py::test_a_write_to_an_array_from_outside_is_refused_at_its_line_and_writes_nothing",
           "trace/outside.py:Outside._stand_in", "return array"),
    mutant("a traced array may stay outside",
           "test_trace_runs.py::test_a_traced_array_that_is_left_is_taken_out_and_nothing_else_is",
           "trace/outside.py:Outside.put_back", "return None"),
    mutant("two traces are not compared",
           "test_trace_runs.py::test_a_program_that_two_traces_see_differently_is_refused_at_its_line",
           "trace/__init__.py:_difference", "return None"),
    mutant("what the program asks of a float stays an argument",
           "test_trace_outside.py::test_an_error_of_a_number_is_pythons_and_may_be_caught",
           "trace/scalars.py:_guard", "return None"),
    mutant("numbers and texts that were read are not compared",
           "test_trace_outside.py::test_a_plain_path_is_read_again",
           "trace/outside.py:is_other_plain", "return False"),
    mutant("other objects are not noticed",
           "test_trace_outside.py::test_a_plain_path_is_read_again",
           "trace/outside.py:is_other", "return False"),
    mutant("the elements of a container are not noted",
           "test_trace_outside.py::test_a_plain_path_is_read_again",
           "trace/outside.py:Outside.whole", "return None"),
    mutant("special methods run as they are",
           "test_trace_outside.py::test_a_plain_path_is_read_again",
           "trace/hooks.py:special", "return None"),
    mutant("arrays of the outside are those of the first call",
           "test_trace_outside.py::test_a_new_array_in_the_same_place_compiles_nothing",
           "trace/__init__.py:Program.outside", "return self.captured"),
    mutant("an array that is given twice is two",
           "test_trace_outside.py::test_what_the_program_holds_is_itself",
           "trace/outside.py:alike", "return tuple(range(len(arrays)))"),
    mutant("a branch that only raises is never taken",
           "test_trace_outside.py::test_validation_that_only_raises_is_traced_as_passed",
           "trace/recorder.py:Recorder.unlike", "return None"),
    mutant("a check compares nothing",
           "test_check.py::test_check_finds_what_is_looked_at_once",
           "testing/check.py:compare", "return None"),
    mutant("any object may be a result",
           "test_trace_numpy.py::test_a_result_that_hides_traced_arrays_in_an_object_is_refused",
           "trace/__init__.py:_require_value", "return None"),
    # ------------------------------------------------------------ NumPy's own source
    mutant("an ellipsis as out is None",
           "test_right_numpy_source.py::test_the_public_interface",
           "trace/calls.py:_native", "return _called(recorder, function, function, args, kwargs)"),
    mutant("a result without axes is a scalar",
           "test_right_numpy_source.py::test_the_public_interface",
           "trace/array.py:fresh", "scalar = None\n..."),
    mutant("NumPy is not asked for its error",
           "test_right_numpy_source.py::test_the_public_interface",
           "trace/array.py:as_numpy_raises", "return error"),
    # ------------------------------------------------------------ windows and loops
    mutant("each update copies its array",
           "test_right_rows.py::test_work_grows_with_the_windows",
           "simplify/__init__.py:Rewriter._note_window", "return None"),
    mutant("windows that are written over are remembered",
           "test_right_rows.py::test_the_values_are_numpys_bit_by_bit",
           "simplify/windows.py:Windows.write", "return None"),
    mutant("a part that others read is computed twice",
           "test_right_rows.py::test_what_another_node_reads_is_not_computed_twice",
           "simplify/roll.py:Roller.require_own", "return None"),
    mutant("parts of a rolled loop lie anywhere",
           "test_right_rows.py::test_rolled_values",
           "simplify/roll.py:_same_place", "return True"),
    mutant("a loop stays unrolled",
           "test_right_rows.py::test_equal_bodies_are_one_operation_on_the_whole",
           "simplify/roll.py:rolled", "return graph"),
    mutant("loops are not known to be loops",
           "test_right_progress.py::test_a_loop_is_warned_of_once_with_its_line",
           "trace/recorder.py:_loops", "return ()"),
    mutant("kernels have no bound",
           "test_right_hang.py::test_kernels_of_a_core_and_of_a_gpu_have_the_bound",
           "strategies/regions.py:MOST_STATEMENTS", "10**6",
           "strategies/regions.py:MOST_STITCHED", "10**6"),
    mutant("programs are cut where nothing repeats",
           "test_right_hang.py::test_more_rounds_of_a_loop_are_no_more_kernels_to_compile",
           "strategies/regions.py:regions", BLIND),
    mutant("a cut loses an output",
           "test_right_hang.py::test_more_rounds_of_a_loop_are_no_more_kernels_to_compile",
           "strategies/ask.py:in_whole", LOSES_ONE),
    mutant("a kernel takes any number of arguments",
           "test_fuse.py::test_no_kernel_has_more_arguments_than_the_limit",
           "strategies/ask.py:within_arguments", "return plan"),
    mutant("no loop is cut where its windows end",
           "test_right_slow.py::test_a_shifted_load_is_a_window",
           "passes/cut_loops.py:_cut", "return phase"),
    # ------------------------------------------------------------ kernels
    mutant("a load under several guards is clamped",
           "test_right_unwritten.py::test_updates_in_each_other "
           "test_right_unwritten.py::test_random_programs_hold_such_updates",
           "kernel/statements.py:Statements._load", CLAMPED),
    mutant("rows that are taken together share one scratch row",
           "test_schedule.py::test_scratch_rows_of_rows_taken_together_do_not_meet",
           "passes/batch_rows.py:_apart", "return phase"),
    mutant("spans are not mended after a contraction",
           "test_fs18.py::test_no_sweep_ever_makes_a_circle "
           "test_fs18_programs.py::test_a_contraction_raises_a_cluster_above_its_readers",
           "strategies/fs18/spans.py:Contraction._mend", "return None"),
    # ------------------------------------------------------------ the stepper
    mutant("nobody runs between two atomics",
           "test_right_stepper.py::test_wrong_under_some_seed",
           "simt/text.py:PAUSES", "frozenset()"),
    mutant("a loop that takes long is a deadlock",
           "test_right_stepper.py::test_a_loop_in_registers_is_no_deadlock",
           "simt/machine.py:Machine.goes_in_circles", "return True"),
    mutant("integers of a kernel are Python's",
           "test_right_stepper.py::test_integers_have_their_width",
           "simt/values.py:number", "return value"),
    # ------------------------------------------------------------ texts
    mutant("names stand in comments as they are",
           "test_right_text.py::test_names_of_a_built_graph_stay_comments",
           "graph.py:printable", "return text"),
    mutant("a call may hide a name of its own",
           "test_right_text.py::test_a_class_of_results_may_have_any_name",
           "graph.py:_OWN", "re.compile('(?!)')"),
    mutant("a ufunc may be any attribute of NumPy",
           "test_right_text.py::test_a_graph_that_says_more_than_a_graph_is_refused",
           "trace/builder.py:_ufunc_type", "return types[0]"),
    mutant("an entry on the disk needs no signature",
           "test_right_text.py::test_an_entry_that_is_not_signed_is_never_unpickled",
           "runtime/store.py:_digest", "return b'0' * 32"),
    mutant("no word is said of a call that takes no traced array",
           "test_right_errors.py::test_a_refusal_says_the_line_what_stands_there_and_what_to_write",
           "trace/calls.py:_called", "return function(*args, **kwargs)"),
    mutant("no word is said of a truth value",
           "test_right_errors.py::test_a_refusal_says_the_line_what_stands_there_and_what_to_write",
           "trace/refusals.py:TRUTH", "{}"),
    mutant("our frames stand between the user's",
           "test_right_errors.py::test_a_traceback_ends_at_the_users_line",
           "trace/recorder.py:is_inside", "return False"),
    # ------------------------------------------------------------ memory
    mutant("a cache forgets nothing",
           "test_right_memory.py::test_programs_used_least_lately_go",
           "runtime/programs.py:_turn", "return None"),
    mutant("a table keeps all launches",
           "test_right_memory.py::test_what_a_function_leaves_is_freed",
           "runtime/steps.py:_built", "{}"),
)


def edited(source: str, name: str, text: str) -> str:
    """The source with a new body of one function, or a new value of one constant.

    Raises LookupError if it has none of this name.
    """
    lines = source.splitlines(keepends=True)
    for found, node in _definitions(ast.parse(source), ""):
        if found == name and isinstance(node, ast.FunctionDef):
            first = node.body[0 if ast.get_docstring(node) is None else 1]
            old = "".join(lines[first.lineno - 1:node.end_lineno])
            new = textwrap.indent(textwrap.dedent(text).strip("\n"), " " * first.col_offset) + "\n"
            if new.endswith("...\n"):
                new = new.rstrip(". \n") + "\n" + old
            return "".join([*lines[:first.lineno - 1], new, *lines[node.end_lineno:]])
        if found == name and isinstance(node, Constant):
            assert node.value
            before = ast.get_source_segment(source, node) or ""
            value = ast.get_source_segment(source, node.value) or ""
            changed = before.removesuffix(value) + text
            return source.replace(f"\n{before}", f"\n{changed}", 1)
    raise LookupError(name)


def _definitions(
        parent: ast.Module | ast.ClassDef, prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    for node in parent.body:
        match node:
            case ast.FunctionDef():
                yield prefix + node.name, node
            case ast.ClassDef():
                yield from _definitions(node, f"{prefix}{node.name}.")
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target):
                yield prefix + ast.unparse(target).strip("()"), node


def edits(mutant: Mutant) -> dict[str, str]:
    """The path and the new text of each file that a mutant changes.

    Raises LookupError for a place that is not there.
    """
    texts: dict[str, str] = {}
    for place, text in mutant.edits:
        file, _, name = place.partition(":")
        path = f"minisitch/{file}"
        before = texts.get(path) or (ROOT / path).read_text(encoding="utf-8")
        texts[path] = edited(before, name, text)
    return texts


def is_found(mutant: Mutant, folder: Path) -> tuple[bool, str]:
    """Whether a test fails on the mutant, and what pytest says: its last line, and its first error."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        copy = Path(made) / "minisitch"
        for name in COPIED:
            if (ROOT / name).is_dir():
                leave = shutil.ignore_patterns("__pycache__", "results")
                shutil.copytree(ROOT / name, copy / name, ignore=leave)
            else:
                shutil.copy(ROOT / name, copy / name)
        for path, text in edits(mutant).items():
            (copy / path).write_text(text, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(copy), "HYPOTHESIS_PROFILE": "ci",
                       "MINISITCH_CACHE": str(folder / "cache")}
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider"]
        done = subprocess.run([*command, *mutant.tests], cwd=copy, env=environment,
                              capture_output=True, text=True)
    said = done.stdout.strip().splitlines() or [done.stderr[-200:]]
    error = next((line[1:].strip() for line in said if line.startswith("E  ")), "")
    return done.returncode == 1 and not error.startswith(STALE), f"{said[-1]}: {error[:100]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutants whose description has one of these")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    chosen = [m for m in MUTANTS if not given.words or any(word in m.fault for word in given.words)]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(given.jobs) as pool:
        missed = 0
        for each, (found, line) in zip(chosen, pool.map(partial(is_found, folder=Path(folder)), chosen), strict=True):
            print(f"{'found' if found else 'MISSED'}: {each.fault} ({line})", flush=True)
            missed += not found
    print(f"{len(chosen) - missed} of {len(chosen)} mutants were found")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
