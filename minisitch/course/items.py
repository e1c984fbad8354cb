"""Items: what an assignment asks of a submission. An assignment's ``items.py`` defines them.

    @item("above", "A value's span is higher than the spans of its readers.", draw=random_graph)
    def above(case, ask):
        found = ask("spans", case.readers, case.cost)
        for value, readers in case.readers.items():
            for reader in readers:
                if found[value] <= found[reader]:
                    return f"value {value} has span {found[value]}; value {reader} reads it and has span {found[reader]}"

An item is a property, not a list of expected answers. It draws cases from a seed, asks the
submission about each, and says what is wrong, or returns nothing. Each item with ``hidden`` cases
has a hidden twin: the same property on other and larger cases, whose seed is an HMAC of a secret.
"""

import hashlib
import hmac
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

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

    ``draw`` makes a case. ``examples`` are cases that are always asked, at the beginning of the
    visible ones; a function makes one of the variant. ``visible`` and ``hidden`` are numbers of drawn cases, and the sizes go up to
    ``size`` and ``hidden_size``. ``smaller`` gives smaller cases of a failing one, to find the
    smallest. ``seconds`` is the deadline of a question. An item passes only together with the visible
    items that it ``needs``: else returning nothing would pass whatever says that something is absent.
    ``rules`` are those of the stepper that this item is about; ``*`` is any. A kernel that is refused
    passes no item, but it is this item that reports these rules. Items with one ``cases_of`` draw the
    same cases: so a kernel is launched once for all of them.
    """

    name: str
    rule: str
    judge: Callable[[Any, Ask], str | None]
    draw: Callable[[Drawing], Any] | None = None
    examples: Sequence[Any] = ()
    visible: int = 20
    hidden: int = 60
    size: int = 8
    hidden_size: int = 24
    smaller: Callable[[Any], Iterable[Any]] | None = None
    seconds: float = 10.0
    weight: float = 1.0
    needs: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    cases_of: str = ""

    def cases(self, key: str, assignment: str, variant: str) -> Iterator[Any]:
        """The cases of the visible item, or of the hidden twin if ``key`` is a secret."""
        hidden = key != PUBLIC
        if not hidden:
            yield from (each(variant) if callable(each) else each for each in self.examples)
        count, most = (self.hidden, self.hidden_size) if hidden else (self.visible, self.size)
        for number in range(count if self.draw else 0):
            size = 2 + (most - 2) * number // max(1, count - 1)
            assert self.draw is not None
            yield self.draw(
                Drawing(
                    seeded(key, assignment, self.cases_of or self.name, variant, str(number)), size, variant, hidden
                )
            )

    def has(self, hidden: bool) -> bool:
        """Whether there are cases, visible or hidden."""
        return bool(self.draw and (self.hidden if hidden else self.visible)) or bool(
            self.examples and not hidden
        )


@dataclass(frozen=True)
class Prediction:
    """A question whose answer a student predicts without running anything: ``ask(drawing)`` returns its text and the answer."""

    name: str
    ask: Callable[[Drawing], tuple[str, Any]]


def item(name: str, rule: str, **options: Any) -> Callable[[Callable[..., Any]], GradedItem]:
    """Make a ``GradedItem`` of a judge. Rules are whole sentences, and options are its fields."""
    return lambda judge: GradedItem(name, rule, judge, **options)


def prediction(ask: Callable[[Drawing], tuple[str, Any]]) -> Prediction:
    """Make a ``Prediction`` of a function that draws a question and knows the answer."""
    return Prediction(ask.__name__, ask)


def seeded(key: str, *what: str) -> random.Random:
    """A generator whose seed nobody knows without the key: HMAC-SHA256 of what it is for."""
    return random.Random(hmac.new(key.encode(), "\0".join(what).encode(), hashlib.sha256).digest())


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
        return all(
            conforms(key, inner[0]) and conforms(each, inner[1]) for key, each in value.items()
        )
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
