# refused by: together
# Each candidate has a group of its own: the paper's version without merging.


def groups(ops, candidates):
    taken, found = set(candidates), []
    for candidate in candidates:
        members = [candidate]
        for member in members:
            fresh = [each for each in dict.fromkeys(ops[member][1]) if each not in taken]
            taken.update(fresh)
            members += fresh
        found.append((candidate, members))
    return found
