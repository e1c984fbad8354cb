"""What draws the cases of A8. It stays at home."""

from __future__ import annotations

from dataclasses import replace

from items import Lives, Wishes
from minisitch.course import Drawing, prediction


def draw_lives(at: Drawing) -> Lives:
    names = at.random.sample(range(3 * at.size), at.size)
    buffers = {}
    for name in names:
        first = at.random.randrange(at.size)
        buffers[name] = (
            at.random.randint(1, 40) * at.random.choice((1, 4, 4, 16)),
            first,
            first + at.random.randint(1, 4),
        )
    return Lives(buffers, at.random.choice((4, 16, 16, 256 if at.hidden else 32)), at.variant)


def draw_chain(at: Drawing) -> Lives:
    """Buffers of one size that follow each other: a packing in any sensible order needs no more than is live."""
    size = at.random.choice((16, 64, 100))
    return Lives({name: (size, name, name + at.random.choice((1, 1, 2, 4))) for name in range(at.size + 2)}, 16, at.variant)


def draw_wishes(at: Drawing) -> Wishes:
    names = at.random.sample(range(3 * at.size), at.size)
    wishes = {
        name: (at.random.choice((4, 6, 8, 16, 64, 100, 256)), at.random.randint(1, 40))
        for name in names
    }
    return Wishes(wishes, at.random.randint(0, sum(size for size, _ in wishes.values()) + 10))


# Buffer 5 has fewer reads a byte: 149999999 / 150000000 is less than 150000000 / 150000001. As floats the two are equal.
CLOSE = Wishes({3: (150_000_001, 150_000_000), 5: (150_000_000, 149_999_999)}, 150_000_001)


def close_call(variant: str) -> list[Wishes]:
    return [CLOSE]


def none(variant: str) -> list[Lives]:
    return [Lives({}, 16, variant)]


# ---------------------------------------------------------------- predictions
@prediction
def live_bytes(at):
    case = replace(draw_lives(at), slot=1)
    return (
        f"buffers = {case.buffers}. How many bytes are live in the phase in which most are? Do not round.",
        case.live(),
    )


@prediction
def meetings(at):
    case = draw_lives(at)
    pairs = sum(
        case.meet(one, other) for one in case.buffers for other in case.buffers if one < other
    )
    return f"buffers = {case.buffers}. How many pairs of buffers are live together?", pairs


@prediction
def fewest_reads(at):
    case = draw_wishes(at)
    return (
        f"wishes = {case.wishes}. Which buffer does give_up name first, if the limit is 0?",
        min(
            case.wishes,
            key=lambda n: (case.wishes[n][1] / case.wishes[n][0], -case.wishes[n][0], n),
        ),
    )
