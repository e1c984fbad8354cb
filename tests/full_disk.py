"""A disk that is full, as the system itself has it."""

import contextlib
import resource


@contextlib.contextmanager
def no_file_may_grow():
    """Inside, every write to a file is an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
