"""Programs in processes of their own, without the second and more that each takes to import NumPy and Numba.

One process per worker imports them, and forks a child for each program. The child is as a new process with these imports: what it
changes ends with it, and it ends as any program does. Tests of what imports do, and of interrupts, start processes themselves.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

FORKS = """
import json, os, signal, sys, warnings
import numba, numpy
import minisitch.runtime.cpu.compile, minisitch.runtime.cpu.thread_pool
numba.njit("int64(int64)")(lambda x: x + 1)  # starts Numba's compiler
for line in sys.stdin:
    asked = json.loads(line)
    with warnings.catch_warnings(action="ignore"):  # from 3.12 on Python warns of a fork beside the threads of NumPy's library
        child = os.fork()
    if child == 0:
        signal.alarm(300)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        for number, path in enumerate(asked["into"]):
            os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY), number)
        sys.argv[1:], names = asked["arguments"], {"__name__": "__main__"}
        exec(compile(asked["text"], "<string>", "exec"), names)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _forks() -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-W", "error", "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True, env=environment)
    atexit.register(process.communicate)
    return process


def run(text: str, folder: Path, *arguments: str, check: bool = False, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program's text as a reader would: from a folder, with this environment, warnings being errors."""
    process = _forks()
    with tempfile.TemporaryDirectory() as made:
        into = [os.devnull, *(str(Path(made) / name) for name in ("out", "err"))]
        for path in into[1:]:
            Path(path).touch()
        asked = {"text": text, "folder": str(folder), "arguments": arguments, "into": into,
                 "environment": os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | environment}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        code = int(process.stdout.readline())
        done = subprocess.CompletedProcess([text], code, *(Path(path).read_text(encoding="utf-8") for path in into[1:]))
    if check:
        assert code == 0, done.stderr
    return done
