"""The word that was meant: the known one that is most like what was written.

Before:  near("astich", STRATEGIES)
After:   " (is 'astitch' meant?)"
"""

import difflib
from argparse import ArgumentParser
from collections.abc import Iterable, Sequence

from . import MinisitchError


class UsageError(MinisitchError):
    """The words on the command line are wrong. The message says what to write."""


OTHERS = {"gpu": "cuda", "nvidia": "cuda", "numpy": "reference", "stepper": "step", "simulator": "step"}


def near(written: object, known: Iterable[str]) -> str:
    """A remark for an error. Empty if no known word is near."""
    names = {each.lower(): each for each in known}
    word = str(written).lower()
    found = names.get(OTHERS.get(word, "")) or next((names[each] for each in difflib.get_close_matches(word, names, 1, 0.7)), None)
    return f" (is {found!r} meant?)" if found else ""


def refuse_unknown_command(parser: ArgumentParser, words: Sequence[str], known: Iterable[str]) -> None:
    """End as argparse does, if there is no word, or the first that is no option is no command."""
    known, word = tuple(known), next((word for word in words if not word.startswith("-")), "")
    if word not in known and (word or not words):
        said = f"no command {word!r}{near(word, known)}" if word else "the command is missing"
        parser.error(f"{said}; take one of {', '.join(known)}; -h says more")
