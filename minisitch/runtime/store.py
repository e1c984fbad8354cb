"""What is kept on disk between processes: a folder of this user's, and entries that are trusted only when signed.

In:  the name of an entry and its bytes. Out: the same bytes in a later process, or None.

    <key>.bin    machine code of one kernel, with its text beside it in <key>.py, only for eyes; or the thread pool's
    <key>.plan   what a strategy decided for one graph (``runtime/plans.py``)
    secret       32 random bytes

An entry is a digest and its content. The digest is keyed with a secret that only this user can read, and covers the
entry's name; so a truncated, foreign, forged or renamed entry is no entry, and is never unpickled. Of more than
``KEEP`` entries the half that was not used for longest goes.

Before:  write(folder, "5f1e.plan", content)      After:  read(folder, "5f1e.plan") == content, in any process of this user
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

KEEP = 3000  # entries on disk
ENTRIES = (".bin", ".plan")


def folder() -> Path | None:
    """The cache folder, made if need be; None when it is switched off or must not be used."""
    return _checked_folder(os.environ.get("MINISITCH_CACHE"))


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
        return None  # a read-only or full disk, or no home: everything works, nothing is kept
    if refusal:
        warnings.warn(f"minisitch keeps no compiled kernels or plans: {refusal}; delete it, set MINISITCH_CACHE to a folder of "
                      "your own, or to 0 to silence this", stacklevel=2)
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
    """Why a file or folder cannot be trusted, if it cannot: another owner, or others may write (or read) it."""
    if not hasattr(os, "geteuid"):
        return None
    found = path.stat()
    if found.st_uid != os.geteuid():
        return f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}"
    return f"{path} has mode {found.st_mode & 0o777:o}, open to other users" if found.st_mode & others else None


def is_private(folder: Path) -> bool:
    """Whether nobody else, of the same group either, may write to the folder."""
    return _refusal(folder, 0o022) is None


def _secret_file(folder: Path) -> Path:
    """The file with the key of this folder's digests: 32 random bytes for this user alone, made by whoever is first."""
    path = folder / "secret"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as fresh:  # mode 0600
            fresh.write(os.urandom(32))
        try:
            os.link(fresh.name, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links: the last one wins, the others' entries are built again
            os.replace(fresh.name, path)
        Path(fresh.name).unlink(missing_ok=True)
    return path


@functools.cache
def _secret(folder: Path) -> bytes:
    return _secret_file(folder).read_bytes()


def _digest(folder: Path, name: str, content: bytes) -> bytes:
    return hmac.digest(_secret(folder), name.encode() + content, "sha256")


def read(folder: Path, name: str) -> bytes | None:
    """The content of an entry whose digest holds; None for any other."""
    try:
        blob = (folder / name).read_bytes()
    except OSError:
        return None
    digest, content = blob[:32], blob[32:]
    if not hmac.compare_digest(digest, _digest(folder, name, content)):
        return None
    with contextlib.suppress(OSError):
        os.utime(folder / name)  # it is in use: _forget_old lets it live
    return content


def write(folder: Path, name: str, content: bytes) -> None:
    """Keep an entry."""
    replace(folder / name, _digest(folder, name, content) + content)
    _forget_old(folder)


@functools.cache
def _forget_old(folder: Path) -> None:
    """Once a process: of too many entries, delete the half not used for longest, and what crashed writers left."""
    with contextlib.suppress(OSError):
        by_age = sorted((f for kind in ENTRIES for f in folder.glob(f"*{kind}")), key=lambda entry: entry.stat().st_mtime)
        old = by_age[: len(by_age) // 2] if len(by_age) > KEEP else []
        left = [f for f in folder.glob("*.tmp") if f.stat().st_mtime < time.time() - 3600]
        for path in (*old, *(entry.with_suffix(".py") for entry in old), *left):
            path.unlink(missing_ok=True)


def replace(path: Path, content: bytes) -> None:
    """Write a file that others see whole or not at all; a full or read-only disk costs them the work again, no more."""
    with contextlib.suppress(OSError):
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as fresh:
            fresh.write(content)
        try:
            os.replace(fresh.name, path)
        finally:
            Path(fresh.name).unlink(missing_ok=True)
