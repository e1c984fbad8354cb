"""An assignment is one folder. This file reads it; no other file knows its layout.

    A5_spans/
        assignment.toml     name, title, week, points, minutes, the submission's file name, variants
        handout.md          what the student reads
        solution.py         the starter is cut from it
        alternative.py      another right solution, of another shape
        given.py            only where a student changes a program: the starter, in place of one cut from the solution
        items.py            items and RETURNS: judges, which hold no answer
        oracle.py           draws cases with the facts that judges need, and predictions; stays at home
        cases.json          only in a release: the visible cases and the students' questions, as data
        reward.py           if there is one: reward(ask, variant), what a student reads after passing
        hints.md            three hints; the first line of each says what it gives away
        data/*              only in a release: the files of the repository that assignment.toml names
        wrong/*.py          misconceptions; two comment lines say which item refuses each, and what it is
        serial/*.py         kernels that are right, and whose threads do not share the work

Between ``# solution: NAME`` and ``# end solution`` lies what a student writes. Between ``variant: NAME``
and ``end variant``, in a comment of Python or HTML, lies what is there in that variant alone.
A file in ``wrong/`` replaces functions of the solution: it is read as if it stood at its end.
"""

import hashlib
import importlib.util
import io
import itertools
import json
import os
import re
import stat
import sys
import tomllib
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import MinisitchError
from ..errors.lazy import lazy
from .items import PUBLIC, Drawing, GradedItem, Prediction, restored, seeded
from .kernels import KernelRun

SOLUTION = re.compile(
    r"^(?P<pad> *)# solution: (?P<name>.+)\n(?P<body>(?:.*\n)*?)(?P=pad)# end solution\n", re.M
)
LONGEST_FILE = 1 << 20  # bytes of a submission
MOST_FILES = 2000  # of a folder that is handed in
HOME = Path(__file__).resolve().parent.parent.parent / "tutorials" / "assignments"


class CourseError(MinisitchError):
    """A command of the course tool cannot be done. The message says what to do instead."""


@contextmanager
def own_files(folder: Path, what: str) -> Iterator[None]:
    """Whatever an assignment's own file raises becomes a CourseError: it names the line, and blames no student."""
    try:
        yield
    except MinisitchError:
        raise
    except Exception as problem:
        places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(problem.__traceback__)]
        if isinstance(problem, SyntaxError):
            places.append((str(problem.filename), problem.lineno))
        own = [f"{name}:{line}" for name, line in places if Path(name).is_relative_to(folder)]
        raise CourseError(
            f"{what} is broken, which is the course's mistake and no student's: {(own or [str(folder)])[-1]}: "
            f"{problem!r:.300}"
        ) from problem


@dataclass(frozen=True)
class Misconception:
    """A wrong solution, the items that refuse it, and what it gets wrong, in words."""

    name: str
    text: str
    refused_by: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class Hint:
    """One of three hints: what it gives away, and its text."""

    gives_away: str
    text: str


class Assignment:
    """One folder. Raises CourseError if it is no assignment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            facts = tomllib.loads((folder / "assignment.toml").read_text(encoding="utf-8"))
            self.name: str = facts["name"]  # a student may give the folder any name
            self.title: str = facts["title"]
            self.points: float = float(facts["points"])
            self.minutes: int = facts["minutes"]
            self.week: int = facts["week"]
            self.file: str = facts["file"]
            self.data: list[str] = facts.get("data", [])
            self.next: str = facts.get("next", "")
            self.variants: dict[str, str] = facts["variants"]
        except OSError as problem:
            raise CourseError(f"{folder} is no assignment: {problem.strerror}: assignment.toml") from None
        except (KeyError, ValueError, TypeError) as problem:
            raise CourseError(
                f"{folder}/assignment.toml: {problem!r}; it has name, title, points, minutes, week, file, variants"
            ) from None
        self.drawn: dict[tuple[str, str, str], list[Any]] = {}  # an item's name, the key, the variant -> its cases

    def __reduce__(self) -> tuple[type, tuple[Path]]:
        return Assignment, (self.folder,)  # another process reads the folder itself

    @property
    def variant(self) -> str:
        """The variant that a term has which chooses none: the first."""
        return next(iter(self.variants))

    def text(self, name: str, variant: str) -> str:
        """A file of the folder, as it reads in one variant."""
        return in_variant((self.folder / name).read_text(encoding="utf-8"), variant)

    @lazy
    def module(self) -> ModuleType:
        """``items.py``, run once."""
        return self.run("items.py")

    @lazy
    def oracle(self) -> ModuleType | None:
        """``oracle.py``, run once. It imports ``items``. None in a release."""
        if not (self.folder / "oracle.py").exists():
            return None
        before, sys.modules["items"] = sys.modules.get("items"), self.module
        try:
            return self.run("oracle.py")
        finally:
            del sys.modules["items"]
            sys.modules |= {"items": before} if before else {}

    def run(self, file: str) -> ModuleType:
        """A program of the folder, as a module."""
        name = f"minisitch_{file.removesuffix('.py')}_{self.name}"
        spec = importlib.util.spec_from_file_location(name, self.folder / file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up
        with own_files(self.folder, f"{file} of {self.name}"):
            spec.loader.exec_module(module)
        return module

    @lazy
    def recorded(self) -> dict[str, Any]:
        """What a release has in place of the oracle. Empty at home."""
        path = self.folder / "cases.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def cases(self, item: GradedItem, key: str, variant: str) -> Iterator[Any]:
        """The visible cases of an item, or the hidden ones if ``key`` is a secret. Raises CourseError in a release for those."""
        place = item.cases_of or item.name, key, variant
        if place not in self.drawn and self.oracle is not None:
            self.drawn[place] = list(item.cases(key, self.name, variant, self.oracle))
        elif place not in self.drawn:
            if key != PUBLIC:
                raise CourseError(f"{self.folder} is a release, which has visible cases alone; grade where oracle.py is")
            types = {**vars(sys.modules[__package__]), **vars(self.module)}
            self.drawn[place] = restored(self.recorded.get("cases", {}).get(place[0], []), types)
        return iter(self.drawn[place])

    @property
    def items(self) -> list[GradedItem]:
        """The items in the order in which ``items.py`` defines them."""
        return [value for value in vars(self.module).values() if isinstance(value, GradedItem)]

    @property
    def predictions(self) -> list[Prediction]:
        """The questions that students answer without running anything; in a release, their names alone."""
        if self.oracle is None:
            return [Prediction(name) for name in self.recorded.get("predictions", ())]
        return [value for value in vars(self.oracle).values() if isinstance(value, Prediction)]

    def asked(self, student: str, variant: str, key: str = PUBLIC) -> list[tuple[str, Any]]:
        """The text and the answer of each prediction of one student, who is known by the name in lower case. At home alone."""
        student, found = student.strip().lower(), []
        for each in self.predictions:
            seed = seeded(key, "prediction", self.name, each.name, variant, student)
            with own_files(self.folder, f"the prediction {each.name!r} of {self.name}"):
                assert each.ask is not None
                found.append(each.ask(Drawing(seed, 6, variant, False)))
        return found

    def questions(self, student: str, variant: str, key: str = PUBLIC) -> list[str]:
        """The texts of the predictions of one student. Raises CourseError in a release that has none for the student."""
        if self.oracle is not None:
            return [text for text, _ in self.asked(student, variant, key)]
        known = self.recorded.get("questions", {})
        if student_key(student) not in known:
            raise CourseError(
                f"this release has no questions for {student!r}; write the address that your course knows you by, or ask "
                "your instructor for a release with you in its roster"
            )
        return known[student_key(student)]

    @property
    def returns(self) -> dict[str, Any]:
        """The type of what each function returns."""
        with own_files(self.folder, f"items.py of {self.name}"):
            return self.module.RETURNS

    @property
    def functions(self) -> list[str]:
        """The functions that are asked for and are no kernels."""
        return [name for name, kind in self.returns.items() if kind is not KernelRun]

    @lazy
    def hints(self) -> list[Hint]:
        text = (self.folder / "hints.md").read_text(encoding="utf-8")
        parts = re.split(r"^## .*\n", text, flags=re.M)[1:]
        found = [part.strip().partition("\n") for part in parts]
        return [Hint(first.removeprefix("Gives away: ").strip(), rest.strip()) for first, _, rest in found]

    @property
    def lines(self) -> int:
        """How many lines the solution has where a student writes; comments and blank lines are not counted."""
        found = SOLUTION.finditer(self.text("solution.py", self.variant))
        return sum(len(written(match["body"])) for match in found)

    def starter(self, variant: str) -> str:
        """The solution without its answers: each says how long it may become, and raises NotImplementedError.

        Where a student repairs a program, it is that program.
        """
        if (self.folder / "given.py").exists():
            return self.text("given.py", variant)
        if not (self.folder / "solution.py").exists():
            raise CourseError(f"this folder is a release, and its starter is {self.folder / self.file}; copy that file")

        def cut(match: re.Match[str]) -> str:
            lines = len(written(match["body"]))
            return (
                f"{match['pad']}# Write {match['name']} here: about {lines} line{'s' * (lines != 1)}.\n"
                f'{match["pad"]}raise NotImplementedError("{match["name"]}")\n'
            )

        return SOLUTION.sub(cut, self.text("solution.py", variant))

    def misconceptions(self, folder: str = "wrong") -> Iterator[Misconception]:
        """What ``wrong/`` holds, or ``serial/``, each as a whole submission in the first variant."""
        solution = self.text("solution.py", self.variant)
        for path in sorted((self.folder / folder).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            header = re.match(r"# refused by: (.+)\n# (.+)\n", text)
            if header is None:
                raise CourseError(f"{path} does not begin with `# refused by: ITEM` and `# what it gets wrong`")
            items = tuple(re.split(r", *", header[1]))
            yield Misconception(path.stem, f"{solution}\n\n{text}", items, header[2])


def student_key(student: str) -> str:
    """What a release has in place of a student's name."""
    return hashlib.sha256(student.strip().lower().encode()).hexdigest()[:16]


def data_file(folder: Path, name: str) -> Path:
    """A file that an assignment takes from elsewhere in the repository. A release brings it along."""
    released = folder / "data" / Path(name).name
    return released if released.exists() else HOME.parent.parent / name


def in_variant(text: str, variant: str) -> str:
    """A text without the lines that belong to other variants, nor the marks around them.

    Lines are looked at once each: a submission comes through here too, and no text takes long.
    """
    kept: list[str] = []
    held: list[str] = []  # the rows since a mark: it counts only if the part has an end
    for row in text.splitlines(keepends=True):
        mark = _mark(row)
        if mark == "end variant" and held:
            names = _mark(held[0]).removeprefix("variant: ").replace(",", " ").split()
            kept += held[1:] if variant in names else []
            held = []
        elif held or mark.startswith("variant: "):
            held.append(row)
        else:
            kept.append(row)
    return "".join(kept + held)


def _mark(row: str) -> str:
    """What a comment of one line says, in Python or HTML; nothing if the line is no comment."""
    said = row.strip()
    if said.startswith("<!--"):
        return said.removeprefix("<!--").removesuffix("-->").strip()
    return said.removeprefix("#").strip() if said.startswith("#") else ""


def written(text: str) -> list[str]:
    """The lines of a program that are neither blank nor comments, without their indentation."""
    rows = map(str.strip, text.splitlines())
    return [row for row in rows if row and not row.startswith("#")]


def find_assignments(where: Path | None = None) -> dict[str, Assignment]:
    """The assignments by name: of a folder, else of the working folder, else of the repository. Raises CourseError."""
    places = [where] if where else [Path.cwd(), Path.cwd() / "tutorials" / "assignments", HOME]
    for place in places:
        paths = sorted(place.glob("assignment.toml")) or sorted(place.glob("*/assignment.toml"))
        if found := [Assignment(path.parent) for path in paths]:
            found.sort(key=lambda each: (int(re.sub(r"\D", "", each.name) or 0), each.name))
            return {each.name: each for each in found}
    raise CourseError(
        f"no assignment in {' or '.join(map(str, places))}; go to the folder that your instructor gave you, or to a clone of "
        "the repository, or give the folder with --assignments"
    )


def find_assignment(name: str, where: Path | None = None) -> Assignment:
    """One assignment, by its short name ``A5`` or its folder's name. Raises CourseError."""
    known = find_assignments(where)
    short = name.partition("_")[0].upper()
    if short not in known:
        raise CourseError(f"there is no assignment {name}; there are {', '.join(known)}")
    return known[short]


def read_submission(path: Path, assignment: Assignment) -> str:
    """The text of a submission: a file, a zip, or a folder that holds one file of the right name, or one program.

    Raises CourseError if it is no plain text file. A symbolic link is refused: it could name a file that only the
    grader may read. What this costs is bounded by the bytes that it may read.
    """
    if path.is_dir() and not path.is_symlink():
        walked = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
        inside = {str(each.relative_to(path)): each for each in itertools.islice(walked, MOST_FILES)}
        path = inside[_the_one(list(inside), path.name, assignment)]
    data, name = _plain_bytes(path, assignment), path.name
    if data.startswith(b"PK\x03\x04"):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as zipped:
                files = {each.filename: each for each in zipped.infolist()[:MOST_FILES] if not each.is_dir()}
                name = _the_one(list(files), name, assignment)
                if files[name].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise CourseError(f"cannot unzip {path.name}: its compression is unusual; hand in {assignment.file}")
                data = zipped.open(files[name]).read(LONGEST_FILE + 1)
        except CourseError:
            raise
        except Exception as problem:  # a broken zip may end in errors of many kinds
            raise CourseError(f"cannot unzip {path.name}: {problem}; hand in the file {assignment.file}") from None
    if len(data) > LONGEST_FILE:
        raise CourseError(f"{name} is longer than 1 MB; hand in {assignment.file} alone")
    try:
        return data.decode("utf-8-sig")  # some editors begin a file with a mark of the byte order
    except UnicodeDecodeError:
        raise CourseError(f"{name} is not UTF-8 text; save it as UTF-8") from None


def _the_one(names: list[str], where: str, assignment: Assignment) -> str:
    """The submission among the files of a folder: the one of the right name, the topmost first; else the only program."""
    parts = {each: Path(each).parts for each in names}
    seen = [each for each in names if not any(part.startswith((".", "__MACOSX")) for part in parts[each])]
    found = [each for each in seen if parts[each][-1] == assignment.file]
    found = [each for each in found if len(parts[each]) == 1] or found
    found = found or [each for each in seen if each.endswith((".py", ".zip"))]
    if len(found) != 1:
        count = f"{len(found)} files could be it" if found else "there is none"
        raise CourseError(f"cannot read {assignment.file}: {count} in {where}; hand in one file {assignment.file}")
    return found[0]


def _plain_bytes(path: Path, assignment: Assignment) -> bytes:
    """The first bytes of a file, one more than it may have. Raises CourseError if it is none, or a link."""
    try:
        opened = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise CourseError(f"{path.name} is not a plain file; hand in {assignment.file} itself")
            return file.read(LONGEST_FILE + 1)
    except OSError as problem:
        reason = "it is a symbolic link" if path.is_symlink() else str(problem.strerror).lower()
        raise CourseError(f"cannot read {path.name}: {reason}; hand in the file {assignment.file}") from None
