"""NumPy's public interface, function by function: equal to NumPy, the same error, or a refusal with the user's line. Nothing else.

One program in nine of the table is tried here; ``PYTHONPATH=. python tests/numpy_api.py`` tries all.
"""

import collections
import functools

import numpy as np
import pytest
from numpy_api import POOL, UFUNCS, outcome, program, programs, verdict

import minisitch as ms

PARTS, EVERY = 4, 9


@functools.cache
def cases(every: int = EVERY) -> list[tuple[str, str]]:
    return list({text: (name, text) for name, text in programs(every)}.values())


@pytest.mark.parametrize("part", range(PARTS))
def test_the_public_interface(part):
    mine = [(name, text) for index, (name, text) in enumerate(cases()) if index % PARTS == part]
    found = {text: verdict(text) for _, text in mine}
    counts = collections.Counter(found.values())
    print({what: counts[what] for what in ("equal", "raises", "refused")})
    assert {text: what for text, what in found.items() if what not in ("equal", "raises", "refused")} == {}
    assert counts["equal"] > len(mine) / 2  # a table that is mostly refused or wrong shows nothing


def test_every_public_function_is_in_the_table():
    """But for what reads files, prints, or sets how NumPy computes and prints."""
    names = {name.partition(".")[2] for name, _ in cases(1)} | set(UFUNCS)
    callables = {name for name in np.__all__ if callable(getattr(np, name)) and not isinstance(getattr(np, name), type)}
    table = " ".join(text for _, text in cases(1))
    missing = {name for name in callables - names if f"np.{name}(" not in table and f"'{name}')(" not in table}
    assert missing <= set("""busday_count busday_offset is_busday datetime_as_string datetime_data fromfile fromregex fromstring genfromtxt
        get_include get_printoptions getbufsize geterr geterrcall load loadtxt nested_iters printoptions save savetxt savez savez_compressed set_printoptions
        setbufsize seterr seterrcall show_config show_runtime test info""".split())


# ---------------------------------------------------------------- on targets
def test_the_same_on_kernels():
    """A part of the table as Python text and on the stepper: what is traced is computed there, too."""
    for target, every in (("python", 40), ("step", 80)):
        texts = [text for name, text in cases()[::every] if verdict(text) == "equal"]
        assert {text: verdict(text, target) for text in texts} == dict.fromkeys(texts, "equal"), target


def test_numpys_integers_are_sizes_or_refused():
    function, names = program("v.reshape(m, -1)")
    result, error = outcome(lambda: ms.jit(function, target="reference")(*(POOL[name] for name in names)))
    assert result is None and "program.py:2" in str(error)
