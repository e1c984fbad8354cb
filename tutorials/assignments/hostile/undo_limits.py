# attack: Raises its limits again, and opens Landlock.
import ctypes
import resource


def attack():
    for name in ("RLIMIT_NPROC", "RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_NOFILE"):
        try:
            resource.setrlimit(
                getattr(resource, name), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
        except (OSError, ValueError):
            pass
    library = ctypes.CDLL(None)
    library.prctl(38, 0, 0, 0, 0)
    library.prctl(22, 0, 0, 0, 0)
    with open("/etc/passwd") as file:
        return {0: len(file.read())}


def spans(readers, cost):
    return attack()


def grow(root, readers, spans, fits):
    return attack()
