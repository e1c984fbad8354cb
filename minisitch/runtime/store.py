"""Keep entries on disk between processes: one folder for each user, with signed entries.

In:  the name of an entry and its bytes. Out: the same bytes in a later process, or None.

    <key>.bin    machine code of a kernel, with its text in <key>.py for readers, or of the pool
    <key>.plan   a strategy's plan for one graph (``runtime/plans.py``)
    secret       32 random bytes

An entry is a digest and its content. The digest uses a secret that only this user can read, and
covers the entry's name. An entry that is truncated, foreign, forged or renamed is ignored and never
unpickled. If there are more than ``KEEP`` entries, the half that was unused for longest is deleted.

Before:  write(folder, "5f1e.plan", content)
After:   read(folder, "5f1e.plan") == content, in any process of this user
"""

import contextlib
import functools
import hmac
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

KEEP = 3000  # entries on disk
ENTRIES = (".bin", ".plan")
_closed: list[None] = []  # an item for each open ``closed``


def folder() -> Path | None:
    """The cache folder, created if necessary. None if it is switched off or not safe."""
    return None if _closed else _checked_folder(os.environ.get("MINISITCH_CACHE"))


@contextlib.contextmanager
def closed() -> Iterator[None]:
    """Read and write no entry while the context is open."""
    _closed.append(None)
    try:
        yield
    finally:
        _closed.pop()


@functools.cache
def _checked_folder(setting: str | None) -> Path | None:
    if setting in ("0", "off"):
        return None
    try:
        folder = Path(setting).expanduser().absolute() if setting else _default_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refusal = _refusal(folder, 0o002) or _refusal(_secret_file(folder), 0o077)
        if not refusal and len(_secret(folder)) != 32:
            refusal = f"{folder / 'secret'} is damaged"
    except (OSError, RuntimeError):
        return None  # read-only or full disk, or no home: everything works, nothing is kept
    if refusal:
        warnings.warn(f"minisitch keeps no compiled kernels or plans: {refusal}; delete it, set "
                      "MINISITCH_CACHE to a folder of your own, or to 0 to silence this",
                      stacklevel=2)
        return None
    return folder


def _default_folder() -> Path:
    home = Path.home()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = home / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or home / ".cache"
    return Path(base) / "minisitch"


def _refusal(path: Path, others: int) -> str | None:
    """Why a path cannot be trusted: another owner, or open to other users. None if it can."""
    if not hasattr(os, "geteuid"):
        return None
    found = path.stat()
    if found.st_uid != os.geteuid():
        return f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}"
    return f"{path} has mode {found.st_mode & 0o777:o}, open to other users" if found.st_mode & others else None


def is_private(folder: Path) -> bool:
    """Whether only this user may write to the folder."""
    return _refusal(folder, 0o022) is None


def _secret_file(folder: Path) -> Path:
    """The file with the key of the digests: 32 random bytes. The first process creates it."""
    path = folder / "secret"
    if not path.exists():
        # The file has mode 0600.
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as fresh:
            fresh.write(os.urandom(32))
        try:
            os.link(fresh.name, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links: the last file wins, and others' entries become invalid
            os.replace(fresh.name, path)
        Path(fresh.name).unlink(missing_ok=True)
    return path


@functools.cache
def _secret(folder: Path) -> bytes:
    return _secret_file(folder).read_bytes()


def _digest(folder: Path, name: str, content: bytes) -> bytes:
    return hmac.digest(_secret(folder), name.encode() + content, "sha256")


def read(folder: Path, name: str) -> bytes | None:
    """The content of an entry with a valid digest. None for any other."""
    try:
        blob = (folder / name).read_bytes()
    except OSError:
        return None
    digest, content = blob[:32], blob[32:]
    if not hmac.compare_digest(digest, _digest(folder, name, content)):
        return None
    with contextlib.suppress(OSError):
        os.utime(folder / name)  # a recent time keeps it from being deleted
    return content


def write(folder: Path, name: str, content: bytes) -> None:
    """Write an entry, with its digest."""
    replace(folder / name, _digest(folder, name, content) + content)
    _forget_old(folder)


@functools.cache
def _forget_old(folder: Path) -> None:
    """Once in each process: delete old entries and temporary files of crashed writers."""
    with contextlib.suppress(OSError):
        by_age = sorted((f for kind in ENTRIES for f in folder.glob(f"*{kind}")), key=lambda entry: entry.stat().st_mtime)
        old = by_age[: len(by_age) // 2] if len(by_age) > KEEP else []
        left = [f for f in folder.glob("*.tmp") if f.stat().st_mtime < time.time() - 3600]
        for path in (*old, *(entry.with_suffix(".py") for entry in old), *left):
            path.unlink(missing_ok=True)


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically. Errors of a full or read-only disk are ignored."""
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as fresh:
            fresh.write(content)
        try:
            os.replace(fresh.name, path)
        finally:
            Path(fresh.name).unlink(missing_ok=True)
