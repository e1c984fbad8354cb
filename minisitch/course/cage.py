"""The cage: a submission runs in a process that answers questions, and this side judges the answers.

    with Cage(source, "spans.py") as cage:
        cage.ask("spans", {0: [1], 1: []}, {0: 1, 1: 1})      # {0: 1, 1: 0}

The process (``child``) never sees an expected value, a test, or the score. So a submission gains
nothing by printing, exiting, patching or forging: it can only return a value, and a value is right
or wrong. No answer is a wrong answer. Every question has a deadline; after it the whole process
group is killed.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MinisitchError
from ..fuse import count
from .child import decode, encode, landlock_version

LIMITS = {
    "RLIMIT_CPU": 120, "RLIMIT_AS": 1 << 30, "RLIMIT_FSIZE": 1 << 20, "RLIMIT_NOFILE": 64,
    "RLIMIT_CORE": 0, "RLIMIT_NPROC": 0,
}
LONGEST_ANSWER, LONGEST_OF_OURS = 1 << 20, 16 << 20  # bytes; the stepper answers with whole arrays
START_SECONDS = 60.0
SECONDS = 10.0  # of one question
MOST_CALLS = 20_000  # of the parent's functions, during one question
ENVIRONMENT = {
    "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8",
}
PACKAGE = Path(__file__).resolve().parent.parent


def imported_library(source: str) -> list[str]:
    """The modules of Python's library that a text imports. They are loaded before reading files is forbidden.

    Looks at the beginning of each line once, and decides nothing else.
    """
    rows = [row.split() for row in source.splitlines() if row.lstrip().startswith(("import ", "from "))]
    names = {word.strip(",;").partition(".")[0] for row in rows for word in row}
    return sorted(names & sys.stdlib_module_names - {"antigravity"})  # which opens a browser


class CageError(MinisitchError):
    """This machine cannot keep a submission from reading or writing what is not its own."""


class NoAnswer(MinisitchError):
    """A submission did not answer a question.

    ``kind`` is "not tried" (it raised NotImplementedError), "error" (it raised something else),
    "file" (its file cannot be run), "time", "died", or "forged" (what came through the pipe is no answer). ``line`` is the line of
    the submission that raised, or 0.
    """

    def __init__(self, kind: str, text: str, line: int = 0):
        super().__init__(text)
        self.kind, self.text, self.line = kind, text, line


class Cage(contextlib.AbstractContextManager["Cage"]):
    """One submission, in one process.

    ``source`` is its text and ``file`` the name that messages call it by. ``trusted`` accepts a
    process without Landlock, as on a student's own machine. Raises CageError where the machine lacks
    it, and NoAnswer if the file itself cannot be run. With ``module``, a module of minisitch answers
    in place of a submission.
    """

    def __init__(
        self, source: str, file: str, trusted: bool = False, seconds: float = SECONDS,
        module: str = "", limits: dict[str, int] = LIMITS,
    ) -> None:
        if not trusted and not landlock_version():
            raise CageError(
                "this machine has no Landlock (Linux 5.13 or newer), so a submission could read the tests; grade on one "
                "that has it, or give --trust if you trust the submission"
            )
        self.seconds, self.number = seconds, 0
        self.longest = LONGEST_OF_OURS if module else LONGEST_ANSWER
        self.unread = b""
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115 - closed by ``close``
        answers, write_end = os.pipe()
        self.answers = open(answers, "rb", buffering=0)  # noqa: SIM115 - closed by ``close``
        self.process = subprocess.Popen(
            # -s -S -P: no installed packages, no folder of the script. PYTHONHASHSEED: sets of strings have one order
            [sys.executable, *"-s -S -P -u".split(), PACKAGE / "course" / "child.py", str(write_end)],
            stdin=subprocess.PIPE,
            stdout=self.printed,
            stderr=self.printed,
            cwd="/",
            env=ENVIRONMENT,
            pass_fds=[write_end],
            start_new_session=True,
        )
        os.close(write_end)
        try:
            self.protections = self._start(source, trusted, module, limits)
            if not module:
                self._question({"load": file, "source": source}, (), seconds)
        except BaseException as problem:
            if isinstance(problem, NoAnswer) and problem.kind == "error":
                problem.kind = "file"
            self.close()
            raise

    def _start(self, source: str, trusted: bool, module: str, limits: dict[str, int]) -> dict[str, Any]:
        """Have the process give up its rights, before it sees the submission. Returns what protects us."""
        try:
            self._say(
                {
                    "limits": limits, "numpy": str(Path(np.__file__).parent),
                    "load_numpy": "numpy" in source, "module": module, "library": imported_library(source),
                    "path": [str(PACKAGE.parent), str(Path(np.__file__).parent.parent)],
                }
            )
            found = self._hear(START_SECONDS)["value"]
        except NoAnswer as problem:
            raise CageError(
                f"the process for a submission could not start: {problem}\n{self.output()}"
            ) from None
        if not trusted and not found["landlock"]:
            raise CageError("Landlock could not be set up here; give --trust if you trust the submission")
        return found

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    # ------------------------------------------------------------ questions
    def ask(self, name: str, *arguments: Any, times: int = 1, seconds: float | None = None) -> Any:
        """Call a function of the submission, and return its value.

        Arguments are plain values, or functions of this process: a call of one is a message. With
        ``times`` the function is called that often on the same objects, and the values are a list.
        Raises NoAnswer.
        """
        functions: list[Callable[..., Any]] = []

        def plain(argument: Any) -> Any:
            if callable(argument):
                functions.append(argument)
                return {"callback": len(functions) - 1}
            return encode(argument)

        question = {"name": name, "args": [plain(each) for each in arguments], "times": times}
        return self._question(question, functions, self.seconds if seconds is None else seconds)

    def value(self, name: str) -> Any:
        """A plain value that the submission's file defines under a name. Raises NoAnswer."""
        return self._question({"name": name}, (), self.seconds)

    def _question(self, question: dict[str, Any], functions: Any, seconds: float) -> Any:
        if not self.alive:
            self._fail("died", "its process had ended before it was asked")
        if self.unread or select.select([self.answers], [], [], 0)[0]:
            self._fail("forged", "it wrote to the answer pipe before it was asked")
        self.number += 1
        self._say({"id": self.number, **question})
        deadline = time.monotonic() + seconds
        for _ in range(MOST_CALLS):
            answer = self._hear(deadline - time.monotonic(), seconds)
            try:
                kind, found = self._read(answer)
                function = functions[found[0]] if kind == "callback" else None
            except (ValueError, TypeError, KeyError, IndexError, RecursionError):
                self._fail("forged", "what came through the answer pipe is no answer to the question")
            if function is None:
                return found
            signature = inspect.signature(function)
            try:
                signature.bind(*found[1])
                value = function(*found[1])
            except Exception as problem:
                given = f"{count(len(found[1]), 'argument')}; the arguments are {signature}"
                said = f"{type(problem).__name__}: {problem!s:.300}"
                self._fail("error", f"it calls the function that it was given with {given}: {said}")
            self._say({"value": encode(value)})
        self._fail("time", f"it called a function that it was given more than {MOST_CALLS:,} times")

    def _read(self, answer: dict[str, Any]) -> tuple[str, Any]:
        """What an answer is: a value, or a call of one of this process's functions. Raises NoAnswer for an error."""
        if answer["id"] != self.number:
            raise ValueError("an answer to another question")
        if "callback" in answer:
            return "callback", (int(answer["callback"]), decode(answer["args"]))
        if "error" in answer:
            name, text, line = str(answer["error"]), str(answer["text"]), int(answer["line"])
            if name == "MemoryError":
                self._fail("died", f"it needs more than {LIMITS['RLIMIT_AS'] >> 20} MB of memory")
            where = name + (f" in line {line}" if line else "") + (f": {text}" if text else "")
            raise NoAnswer("not tried" if name == "NotImplementedError" else "error", where, line)
        return "value", decode(answer["value"])

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._fail("died", "its process ended while it was asked")

    def _hear(self, left: float, seconds: float = START_SECONDS) -> Any:
        """The next line from the pipe, as JSON."""
        end = time.monotonic() + left
        chunks = [self.unread]
        length = len(self.unread)
        while b"\n" not in chunks[-1]:
            if not select.select([self.answers], [], [], max(0.0, end - time.monotonic()))[0]:
                self._fail("time", f"it did not answer within {seconds:g} s")
            chunks.append(self.answers.read(1 << 16))
            length += len(chunks[-1])
            if not chunks[-1]:
                self._fail("died", "its process ended before it answered; os._exit, a crash, or too much memory does that")
            if length > self.longest:
                self._fail("forged", f"its answer is longer than {self.longest >> 20} MB")
        line, _, self.unread = b"".join(chunks).partition(b"\n")
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            self._fail("forged", "what came through the answer pipe is no answer to the question")

    def _fail(self, kind: str, text: str) -> Any:
        self._kill()
        raise NoAnswer(kind, text)

    # ------------------------------------------------------------ the end
    def output(self, most: int = 2000) -> str:
        """The end of what the submission has printed."""
        if self.printed.closed:
            return ""
        self.printed.seek(0)
        return self.printed.read().decode(errors="replace")[-most:]

    def _kill(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # gone, or a group that a root-less parent may not see
            self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End the process and its group, and free what it was given."""
        self._kill()
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.answers.close()
        self.printed.close()
