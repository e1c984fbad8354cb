"""How work grows with a program, counted instead of timed: a busy or a slow machine calls as many functions as a quiet one."""

import cProfile
from collections.abc import Callable
from typing import Any


def calls_of(work: Callable[[], Any]) -> int:
    """How many functions of Python and of C ``work`` calls."""
    with cProfile.Profile(subcalls=False) as profile:
        work()
    return sum(each.callcount for each in profile.getstats())


def growth(work: Callable[[int], Callable[[], Any]], size: int, times: int) -> float:
    """How many times the calls per piece a program of so many times the size takes: 1 where work is linear, ``times`` where it is
    quadratic."""
    once, more = calls_of(work(size)), calls_of(work(times * size))
    assert once > 1000, "too little to tell"
    return more / once / times
