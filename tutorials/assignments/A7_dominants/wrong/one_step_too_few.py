# refused by: covers
# Divides the tasks by the wave and rounds down: the last step is missing.


right = thread_map


def thread_map(rows, cols, device):
    found = right(rows, cols, device)
    tasks = rows // found["rows_per_block"]
    if found["splits"] > 1:
        return found
    return found | {
        "blocks": max(1, min(tasks, device["wave"])),
        "steps": max(1, tasks // device["wave"]),
    }
