# refused by: deep
# Recursion once per value: a long chain is too deep for Python's stack.

from functools import cache


def spans(readers, cost):
    @cache
    def span(value):
        return max((span(user) + cost[user] for user in readers[value]), default=0)

    return {value: span(value) for value in readers}
