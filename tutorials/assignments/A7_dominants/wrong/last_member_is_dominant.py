# refused by: dominant
# The member with the largest number is dominant, whether it is a candidate or not.


right = groups


def groups(ops, candidates):
    return [(max(members), members) for _, members in right(ops, candidates)]
