"""How many threads a kernel may use: a setting of the process, and of a block of code."""

import threading
from pathlib import Path

import children
import pytest

from minisitch.runtime.cpu import workers

ROOT = Path(__file__).resolve().parent.parent


def test_threads_is_a_setting_of_the_block_and_of_its_thread():
    before = workers.thread_count()
    with workers.threads(5):
        assert workers.thread_count() == 5
        elsewhere = []
        other = threading.Thread(target=lambda: elsewhere.append(workers.thread_count()))
        other.start()
        other.join()
        assert elsewhere == [before]
    assert workers.thread_count() == before
    with pytest.raises(ValueError, match="at least one"), workers.threads(0):
        pass


def in_fresh_python(code, **environment):
    """Run ``code`` in a process of its own, which must end by itself."""
    prelude = ("from minisitch.runtime.cpu import workers\n"
               "from minisitch.runtime.this_machine import get_device\nfrom minisitch.errors import DeviceError\n")
    return children.run(prelude + code, ROOT, check=True, **environment).stdout.split()


def test_the_environment_sets_the_number_of_threads():
    assert in_fresh_python("print(workers.thread_count())", MINISITCH_THREADS="3") == ["3"]
    asked = ("workers.thread_count()", "get_device('cpu')")
    lines = [f"os.environ['MINISITCH_THREADS'] = {setting!r}\ntry: {each}\nexcept DeviceError as e: print('MINISITCH_THREADS' in str(e))"
             for setting in ("many", "-1", "0") for each in asked]
    assert in_fresh_python("\n".join(["import os", *lines])) == ["True"] * 6
