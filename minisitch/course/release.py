"""What leaves the course's repository: a folder for students, and a zip for Gradescope.

Students get the handout, the starter, the hints, the judges, and the visible cases and their questions as
data. They get no solution, no wrong solution, no oracle and no secret. The zip holds all that grades,
and the secret.
"""

import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from .assignment import HOME, SOLUTION, Assignment, CourseError, data_file, student_key, written
from .items import PUBLIC, plain

REPOSITORY = HOME.parent.parent
SETUP = """#!/usr/bin/env bash
# Runs once, when Gradescope builds the image. Choose the base image with Ubuntu 24.04, which has Python 3.12.
set -euo pipefail
apt-get update
apt-get install -y python3 python3-venv
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "This needs Python 3.11: choose Ubuntu 24.04")'
python3 -m venv /autograder/venv
/autograder/venv/bin/pip install --constraint /autograder/source/constraints.txt /autograder/source
cd /autograder/source && /autograder/venv/bin/python -m minisitch.course cage || true
"""
RUN = """#!/usr/bin/env bash
# Runs once for every submission.
set -uo pipefail
chmod -R o= /autograder/source /autograder/results
cd /autograder/source
/autograder/venv/bin/python -m minisitch.course grade {name} /autograder/submission --assignments /autograder/source/{folder} \\
    --variant {variant} --secret-file /autograder/source/secret --metadata /autograder/submission_metadata.json \\
    --gradescope /autograder/results/results.json
"""


def release(assignment: Assignment, variant: str, secret: str, to: Path, roster: Sequence[str] = ()) -> list[Path]:
    """Write the student's folder and ``autograder.zip`` into ``to``. Returns what was written.

    ``roster`` are the students' addresses: each has questions of his or her own in the folder, without answers.

    Raises CourseError if there is no repository to pack, or if a folder is in the way.
    """
    if not (REPOSITORY / "pyproject.toml").is_file():
        raise CourseError(
            "a release packs minisitch itself, and this is an installed package; run it in a clone of the repository"
        )
    student = to / assignment.folder.name
    if student.exists():
        raise CourseError(f"{student} is there already; remove it, or release into another folder")
    student.mkdir(parents=True)
    for name, text in student_files(assignment, variant, secret, roster):
        (student / name).parent.mkdir(exist_ok=True)
        (student / name).write_text(text, encoding="utf-8")
    archive = to / f"{assignment.name}-autograder.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for name, data, mode in _archived(assignment, variant, secret):
            entry = zipfile.ZipInfo(name)  # of 1980: two releases are the same bytes
            entry.external_attr = mode << 16
            zipped.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return [student, archive]


def student_files(
    assignment: Assignment, variant: str, secret: str = PUBLIC, roster: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """The files that a student gets: names and texts. Only the chosen variant is named."""
    yield assignment.file, assignment.starter(variant)
    yield "handout.md", assignment.text("handout.md", variant)
    yield "hints.md", assignment.text("hints.md", variant)
    for name in ("items.py", "given.py", "reward.py"):
        if (assignment.folder / name).exists():
            yield name, assignment.text(name, variant)
    recorded = {
        "cases": {
            item.cases_of or item.name: [plain(case) for case in assignment.cases(item, PUBLIC, variant)]
            for item in assignment.items
        },
        "predictions": [each.name for each in assignment.predictions],
        "questions": {student_key(each): assignment.questions(each, variant, secret) for each in roster},
    }
    yield "cases.json", json.dumps(recorded) + "\n"
    facts = assignment.text("assignment.toml", variant).partition("[variants]")[0]
    yield "assignment.toml", f'{facts}[variants]\n{variant} = "{assignment.variants[variant]}"\n'


def leaked_lines(assignment: Assignment, variant: str) -> list[str]:
    """Lines of the solution that a student's folder holds. Lines of fewer than 24 characters say too little to count."""
    parts = [match["body"] for match in SOLUTION.finditer(assignment.text("solution.py", variant))]
    secret_lines = {line for part in parts for line in written(part) if len(line) >= 24}
    if (assignment.folder / "given.py").exists():
        secret_lines -= set(written(assignment.starter(variant)))
    files = student_files(assignment, variant)
    return [f"{name}: {line}" for name, text in files for line in written(text) if line in secret_lines]


def _archived(
    assignment: Assignment, variant: str, secret: str
) -> Iterator[tuple[str, bytes, int]]:
    """Every file of the zip: its name, its bytes, its rights."""
    yield "setup.sh", SETUP.encode(), 0o755
    run = RUN.format(name=assignment.name, folder=assignment.folder.name, variant=variant)
    yield "run_autograder", run.encode(), 0o755
    yield "secret", secret.encode(), 0o600
    package = sorted(path for path in (REPOSITORY / "minisitch").rglob("*") if "__pycache__" not in path.parts)
    tops = [REPOSITORY / name for name in ("pyproject.toml", "constraints.txt", "README.md", "LICENSE")]
    for path in filter(Path.is_file, [*tops, *package]):
        yield str(path.relative_to(REPOSITORY)), path.read_bytes(), 0o644
    for path in sorted(assignment.folder.glob("*.py")):  # an oracle counts the work of right kernels
        yield f"{assignment.folder.name}/{path.name}", path.read_bytes(), 0o600
    path = assignment.folder / "assignment.toml"
    yield f"{assignment.folder.name}/{path.name}", path.read_bytes(), 0o644
    for name in assignment.data:
        path = data_file(assignment.folder, name)
        yield f"{assignment.folder.name}/data/{path.name}", path.read_bytes(), 0o644


def copy_starter(assignment: Assignment, variant: str, folder: Path) -> list[Path]:
    """Write the starter and the variant's handout. Raises CourseError rather than write over work that is there."""
    texts = {
        folder / assignment.file: assignment.starter(variant),
        folder / f"{assignment.name}-handout.md": assignment.text("handout.md", variant),
    }
    for path in filter(Path.exists, texts):
        raise CourseError(f"{path} is there already, and may hold your work; move it, or give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return list(texts)
