"""Items: what an assignment asks of a submission. An assignment's ``items.py`` defines them.

    @item("above", "A value's span is higher than the spans of its readers.", draw="random_graph")
    def above(case, ask):
        found = ask("spans", case.readers, case.cost)
        for value, readers in case.readers.items():
            for reader in readers:
                if found[value] <= found[reader]:
                    return f"value {value} has span {found[value]}; value {reader} reads it and has span {found[reader]}"

An item is a property, not a list of expected answers. It has cases, asks the submission about each,
and says what is wrong, or returns nothing. Each item with ``hidden`` cases has a hidden twin: the same
property on other and larger cases, whose seed is an HMAC of a secret.

What draws cases and knows answers is the assignment's ``oracle.py``, which stays at home. A case holds
what a judge must know of it, its *facts*. A release has the visible cases as data: see ``plain``.
"""

import hashlib
import hmac
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import GenericAlias
from typing import Any, get_args, get_origin

import numpy as np

Ask = Callable[..., Any]
PUBLIC = "visible"  # the key of the seeds of visible items

VISIBLE_SHARE, PREDICTED_SHARE, WRITTEN_SHARE = 0.6, 0.1, 0.1  # of the items' points; of all points


@dataclass(frozen=True)
class Drawing:
    """What a case is drawn from: a seeded generator, a size that grows from case to case, the term's variant."""

    random: random.Random
    size: int
    variant: str
    hidden: bool


@dataclass(frozen=True)
class GradedItem:
    """One property. ``judge(case, ask)`` returns None, or a sentence that says what is wrong with the last answer.

    ``draw`` names the function of ``oracle.py`` that makes a case of a ``Drawing``. ``examples`` are cases
    that are always asked, at the beginning of the visible ones; or they name the function that makes
    them of the variant. ``visible`` and ``hidden`` are numbers of drawn cases, and the sizes go up to
    ``size`` and ``hidden_size``. ``smaller`` gives smaller cases of a failing one, to find the
    smallest. ``seconds`` is the deadline of a question. An item passes only together with the visible
    items that it ``needs``. It *builds* if no trivial answer passes it, such as nothing, zeros, or what
    was given. Every item passes only together with one that builds, of each function that it asks
    about: else returning nothing would pass whatever says that something is absent.
    ``rules`` are those of the stepper that this item is about; ``*`` is any. A kernel that is refused
    passes no item, but it is this item that reports these rules. Items with one ``cases_of`` draw the
    same cases: so a kernel is launched once for all of them.
    """

    name: str
    rule: str
    judge: Callable[[Any, Ask], str | None]
    draw: str = ""
    examples: Sequence[Any] | str = ()
    visible: int = 20
    hidden: int = 60
    size: int = 8
    hidden_size: int = 24
    smaller: Callable[[Any], Iterable[Any]] | None = None
    seconds: float = 10.0
    weight: float = 1.0
    builds: bool = False
    needs: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    cases_of: str = ""

    def cases(self, key: str, assignment: str, variant: str, oracle: Any) -> Iterator[Any]:
        """The cases of the visible item, or of the hidden twin if ``key`` is a secret. ``oracle`` is the module that draws them."""
        hidden, made = key != PUBLIC, self.examples
        if not hidden:
            yield from getattr(oracle, made)(variant) if isinstance(made, str) else made
        count, most = (self.hidden, self.hidden_size) if hidden else (self.visible, self.size)
        for number in range(count if self.draw else 0):
            size = 2 + (most - 2) * number // max(1, count - 1)
            seed = seeded(key, assignment, self.cases_of or self.name, variant, str(number))
            yield getattr(oracle, self.draw)(Drawing(seed, size, variant, hidden))

    def has(self, hidden: bool) -> bool:
        """Whether there are cases, visible or hidden."""
        drawn = self.draw and (self.hidden if hidden else self.visible)
        return bool(drawn or (self.examples and not hidden))


@dataclass(frozen=True)
class Prediction:
    """A question whose answer a student predicts without running anything: ``ask(drawing)`` returns its text and the answer."""

    name: str
    ask: Callable[[Drawing], tuple[str, Any]] | None = None


def item(name: str, rule: str, **options: Any) -> Callable[[Callable[..., Any]], GradedItem]:
    """Make a ``GradedItem`` of a judge. Rules are whole sentences, and options are its fields."""
    return lambda judge: GradedItem(name, rule, judge, **options)


def prediction(ask: Callable[[Drawing], tuple[str, Any]]) -> Prediction:
    """Make a ``Prediction`` of a function that draws a question and knows the answer."""
    return Prediction(ask.__name__, ask)


def seeded(key: str, *what: str) -> random.Random:
    """A generator whose seed nobody knows without the key: HMAC-SHA256 of what it is for."""
    return random.Random(hmac.new(key.encode(), "\0".join(what).encode(), hashlib.sha256).digest())


# ---------------------------------------------------------------- cases as data
def plain(case: Any) -> Any:
    """A case as JSON has it: numbers, strings and lists stand for themselves, and other types say what they are."""
    if isinstance(case, np.ndarray):
        return {"is": "array", "of": [case.dtype.name, list(case.shape), case.ravel().tolist()]}
    if is_dataclass(case):
        return {"is": type(case).__name__, "of": [plain(getattr(case, each.name)) for each in fields(case)]}
    if isinstance(case, Mapping):
        return {"is": "dict", "of": [[plain(key), plain(value)] for key, value in case.items()]}
    if isinstance(case, tuple | frozenset):
        return {"is": "tuple" if isinstance(case, tuple) else "frozenset", "of": list(map(plain, case))}
    return list(map(plain, case)) if isinstance(case, list) else case


def restored(found: Any, types: Mapping[str, Any]) -> Any:
    """The case that ``plain`` made data of. ``types`` are its classes by name."""
    if isinstance(found, list):
        return [restored(each, types) for each in found]
    if not isinstance(found, dict):
        return found
    if found["is"] == "array":
        dtype, shape, values = found["of"]
        return np.array(values, dtype).reshape(shape)
    of = restored(found["of"], types)
    made = {"dict": dict, "tuple": tuple, "frozenset": frozenset}.get(found["is"])
    return made(of) if made else types[found["is"]](*of)


def second_call(ask: Ask, name: str, *arguments: Any) -> str | None:
    """Judges that a function leaves its arguments as they were: a second call with them returns the same."""
    first, second = ask(name, *arguments, times=2)
    return None if first == second else f"the second call of {name} with the same arguments returns {second}"


def conforms(value: Any, kind: Any) -> bool:
    """Whether a plain value has a type such as ``dict[int, list[int]]``. A bool is no int; a list and a tuple are different."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is None:
        fits = type(value) is not int or abs(value) < 1 << 63  # larger ones only make a judge slow
        return fits and (type(value) is kind or (kind is float and type(value) is int))
    if type(value) is not origin:
        return False
    if origin is dict:
        return all(conforms(pair, GenericAlias(tuple, inner)) for pair in value.items())
    if origin is tuple and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(conforms, value, inner))
    return all(conforms(each, inner[0]) for each in value)


def describe(kind: Any, many: bool = False) -> str:
    """A type in words: ``a dict from ints to lists of ints``."""
    origin, inner = get_origin(kind), get_args(kind)
    name = f"{(origin or kind).__name__}{'s' * many}"
    said = name
    if origin is dict:
        said = f"{name} from {describe(inner[0], True)} to {describe(inner[1], True)}"
    elif origin is tuple and inner[-1] is not ...:
        said = f"{name} of " + " and ".join(map(describe, inner))
    elif origin:
        said = f"{name} of {describe(inner[0], True)}"
    return said if many else f"an {said}" if said[0] in "aeiou" else f"a {said}"
