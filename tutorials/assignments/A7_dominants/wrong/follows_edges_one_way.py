# refused by: together
# Follows edges to operands alone: what reads the same value is not found.


def groups(ops, candidates):
    seen, found = set(), []
    for start in ops:
        if start in seen or start not in candidates:
            continue
        members = [start]
        seen.add(start)
        for member in members:
            fresh = [
                each
                for each in dict.fromkeys(ops[member][1])
                if each not in candidates and each not in seen
            ]
            seen.update(fresh)
            members += fresh
        found.append((start, members))
    return found
