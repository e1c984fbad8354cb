# refused by: preference
# The candidate with the smallest number is dominant.


right = groups


def groups(ops, candidates):
    return [(min(set(ids) & set(candidates)), ids) for _, ids in right(ops, candidates)]
