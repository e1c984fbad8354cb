"""The program that runs a submission. It answers questions about it, and can do little else.

``cage`` starts this file in a process of its own, as ``python -s -S -P child.py FD``. It imports
nothing of minisitch, so a submission cannot either. Only where a module of ours answers in place of
a submission (``kernels``) does it import that. Questions come in on standard input, one line
of JSON each. Answers leave through the pipe FD. What the submission prints goes to a file that the
parent owns.

Before the first line of the submission runs, the process gives up its rights for good:

    user        root becomes nobody
    limits      processor time, memory, file size, open files, no new process or thread
    Landlock    reads the standard library and NumPy, nothing else; writes nothing; no TCP
    seccomp     no sockets, signals, programs, or memory of other processes

Landlock and seccomp are Linux's, and need no rights to set up. Elsewhere the process says that
they are missing, and the parent decides.
"""

import builtins
import contextlib
import ctypes
import importlib
import json
import os
import platform
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

NOBODY = 65534
# Loaded before reading files is forbidden, as is what a submission imports: where root alone may come to Python's
# library, nobody could load it. A text with letters of other alphabets needs unicodedata.
LIBRARY = (
    "bisect collections copy dataclasses enum fractions functools graphlib heapq itertools math operator "
    "queue random re statistics string time typing unicodedata"
).split()
LANDLOCK_CREATE, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT = range(444, 447)  # calls, on every machine
READ = 1 << 2 | 1 << 3  # files and folders
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
# System calls that fail, by machine: the machine's number in an audit record, the calls' numbers, and fcntl's number.
# socket socketpair connect bind; clone fork vfork execve execveat clone3; kill tkill tgkill
# rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal pidfd_open; ptrace process_vm_readv
# process_vm_writev; shmget semget msgget mq_open; unshare setns io_uring_setup bpf
# perf_event_open userfaultfd keyctl add_key request_key. What another process of the same user would feel:
# prlimit64 setpriority ioprio_set, sched_setparam sched_setscheduler sched_setattr sched_setaffinity, migrate_pages
# move_pages kcmp pidfd_getfd process_madvise process_mrelease. Rights of files, which Landlock leaves alone: chmod
# fchmod chown fchown lchown fchownat fchmodat fchmodat2, utime utimes futimesat utimensat, setxattr to fremovexattr,
# setxattrat removexattrat. The second machine has no fork and vfork, no chmod, chown, lchown, and only utimensat.
REFUSED = {
    "x86_64": (
        0xC000003E,
        "41 53 42 49 56 57 58 59 322 435 62 200 234 129 297 424 434 101 310 311 "
        "29 64 68 240 272 308 425 321 298 323 250 248 249 "
        "302 141 251 142 144 314 203 256 279 312 438 440 448 "
        "90 91 92 93 94 260 268 452 132 235 261 280 188 189 190 197 198 199 463 466",
        72,
    ),
    "aarch64": (
        0xC00000B7,
        "198 199 203 200 220 221 281 435 129 130 131 138 240 424 434 117 270 271 "
        "194 190 186 180 97 268 425 280 241 282 219 217 218 "
        "261 140 30 118 119 274 122 238 239 272 438 440 448 52 55 54 53 452 88 5 6 7 14 15 16 463 466",
        25,
    ),
}
SIGNAL_OWNER = 8, 15, 10  # of fcntl: who gets a signal when a file is ready, and which
LONGEST_TEXT = 300


# ---------------------------------------------------------------- plain values as JSON
def encode(value: Any) -> Any:
    """A plain Python value as JSON: numbers, strings, lists, tuples, sets, dicts. Raises TypeError for others."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [encode(each) for each in value]
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(each)] for key, each in value.items()]}
    for kind, types in (("tuple", tuple), ("set", (set, frozenset))):
        if isinstance(value, types):
            return {kind: [encode(each) for each in value]}
    name = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
    advice = ": write x.tolist()" * name.startswith("numpy.")  # arrays and numbers have it
    wanted = "return plain numbers, strings, lists, tuples, sets and dicts"
    raise TypeError(f"a {name} is in what you return; {wanted}{advice}")


def decode(value: Any, callback: Callable[[int], Any] | None = None) -> Any:
    """What ``encode`` encoded. ``callback`` makes functions of the numbers that stand for them. Raises ValueError, TypeError."""
    if isinstance(value, list):
        return [decode(each, callback) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "callback" and callback:
        return callback(inner)
    if kind == "dict":
        return {decode(key, callback): decode(each, callback) for key, each in inner}
    return {"tuple": tuple, "set": set}[kind]([decode(each, callback) for each in inner])


# ---------------------------------------------------------------- giving up rights
def _system_call(number: int, *arguments: Any) -> int:
    return ctypes.CDLL(None, use_errno=True).syscall(number, *arguments)


def landlock_version() -> int:
    """The version of Landlock that this kernel has; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, _system_call(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1))


def readable_paths(numpy_folder: str) -> list[str]:
    """What a submission's process may read: the standard library without installed packages, NumPy, shared libraries."""
    standard = Path(os.__file__).parent
    paths = [path for path in standard.iterdir() if path.name not in ("site-packages", "dist-packages")]
    for folder in map(Path, ("/lib", "/lib64", "/usr/lib", "/usr/lib64", f"{sys.base_prefix}/lib")):
        if folder.is_dir():
            paths += [path for path in folder.iterdir() if not path.name.startswith("python")]
    return [
        *map(str, paths), numpy_folder, f"{numpy_folder}.libs", "/etc/ld.so.cache", "/dev/null",
        "/dev/urandom",
    ]


def _close_files(version: int, paths: list[str]) -> None:
    """Landlock: from here on this process reads ``paths`` alone, and writes nothing. Raises OSError."""
    files = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
    # All of the file system, of TCP, of signals and abstract sockets.
    rights = struct.pack("QQQ", files, 3, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    rules = _system_call(LANDLOCK_CREATE, rights, ctypes.c_size_t(len(rights)), 0)
    for path in paths:
        try:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this machine, or not for nobody to read
        rule = struct.pack("=Qi", READ if os.path.isdir(path) else READ & 4, opened)
        if _system_call(LANDLOCK_ADD_RULE, rules, 1, rule, 0):
            raise OSError(ctypes.get_errno(), f"Landlock refuses {path}")
        os.close(opened)
    if _system_call(LANDLOCK_RESTRICT, rules, 0):
        raise OSError(ctypes.get_errno(), "Landlock refuses this process")
    os.close(rules)


def _refuse_calls(library: ctypes.CDLL) -> bool:
    """seccomp: the system calls of REFUSED fail with "not permitted". False if this machine is not in the table."""
    if platform.machine() not in REFUSED:
        return False
    audit, listed, fcntl = REFUSED[platform.machine()]
    numbers = [int(number) for number in listed.split()]
    count = len(numbers)

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, value)

    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    program = [
        step(load, 4),
        step(equal, audit, 1, 0),
        step(give, 0x80000000),  # another machine's calls: the process ends
        step(load, 0),
        step(at_least, 0x40000000, count + 6, 0),
    ]  # x86-64's second table of calls
    program += [step(equal, number, count + 5 - at, 0) for at, number in enumerate(numbers)]
    program += [step(equal, fcntl, 0, 4), step(load, 24)]  # the low half of its second argument
    program += [step(equal, which, 3 - at, 0) for at, which in enumerate(SIGNAL_OWNER)]
    program += [step(give, 0x7FFF0000), step(give, 0x00050001)]  # allowed; else error 1
    text = ctypes.create_string_buffer(b"".join(program))
    whole = struct.pack("HxxxxxxP", len(program), ctypes.addressof(text))
    return library.prctl(PR_SET_SECCOMP, 2, whole, 0, 0) == 0


def give_up_rights(limits: dict[str, int], numpy_folder: str) -> dict[str, Any]:
    """Lock this process up, and say with what. Raises OSError if a lock that this system has does not close."""
    if os.name != "posix":
        return {"landlock": 0, "seccomp": False}
    import resource

    paths = readable_paths(numpy_folder)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    for name, limit in limits.items():
        if hasattr(resource, name):
            most = resource.getrlimit(getattr(resource, name))[1]
            limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
            resource.setrlimit(getattr(resource, name), (limit, limit))
    if sys.platform != "linux":
        return {"landlock": 0, "seccomp": False}
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)  # dies with the parent
    if library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    version = landlock_version()
    if version:
        _close_files(version, paths)
    return {"landlock": version, "seccomp": _refuse_calls(library)}


# ---------------------------------------------------------------- questions and answers
class Conversation:
    """Reads questions and writes answers. A question may hold functions: calling one asks the parent."""

    def __init__(self, questions: BinaryIO, answers: BinaryIO) -> None:
        self.questions, self.answers = questions, answers
        self.number, self.file = 0, ""
        self.names: dict[str, Any] = {}

    def hear(self) -> Any:
        line = self.questions.readline()
        if not line:
            os._exit(0)  # the parent has gone
        return json.loads(line)

    def say(self, **answer: Any) -> None:
        self.answers.write(json.dumps({"id": self.number, **answer}).encode() + b"\n")

    def function_of_parent(self, which: int) -> Callable[..., Any]:
        """The function that the parent calls when this one is called."""

        def ask(*arguments: Any) -> Any:
            self.say(callback=which, args=encode(list(arguments)))
            return decode(self.hear()["value"])

        return ask

    def answer(self, question: dict[str, Any]) -> None:
        """Answer one question: the value, or the error with its line in the submission."""
        self.number = question["id"]
        try:
            self.say(value=encode(self._value(question)))
        except BaseException as error:  # SystemExit too: an early exit is no answer
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == self.file]
            if isinstance(error, SyntaxError) and error.filename == self.file:
                lines = [error.lineno]
            name = type(error).__name__
            self.say(
                error=name if hasattr(builtins, name) else "Exception",
                text=str(getattr(error, "msg", error))[:LONGEST_TEXT], line=(lines or [0])[-1] or 0,
            )

    def _value(self, question: dict[str, Any]) -> Any:
        if "load" in question:
            self.file = question["load"]
            module = type(sys)("submission")
            sys.modules["submission"] = module  # dataclasses look their module up
            self.names = module.__dict__
            exec(compile(question["source"], self.file, "exec"), self.names)
            return None
        name = question["name"]
        if name not in self.names:
            raise NameError(f"the file defines no {name}")
        if "args" not in question:
            return self.names[name]
        arguments = decode(question["args"], self.function_of_parent)
        values = [self.names[name](*arguments) for _ in range(question["times"])]
        return values if question["times"] > 1 else values[0]


def main() -> None:
    """Take the first line for the rules, give up rights, then answer until the parent closes the pipe."""
    conversation = Conversation(os.fdopen(os.dup(0), "rb"), os.fdopen(int(sys.argv[1]), "wb", buffering=0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    rules = conversation.hear()
    for name in [*LIBRARY, *rules["library"]]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    numpy_folder = Path(rules["numpy"])
    if rules["load_numpy"]:
        sys.path.append(str(numpy_folder.parent))
        for name in ("numpy", "numpy.random", "numpy.linalg"):
            importlib.import_module(name)
        sys.path.pop()
    if rules["module"]:
        sys.path += rules["path"]
        conversation.names = vars(importlib.import_module(rules["module"]))
    conversation.say(value=give_up_rights(rules["limits"], str(numpy_folder)))
    while True:
        conversation.answer(conversation.hear())


if __name__ == "__main__":
    main()
