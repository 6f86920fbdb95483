"""Checksums of the files of a folder, in the format of ``sha256sum``: ``sha256sum -c SHA256SUMS`` checks them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

CHECKSUMS = "SHA256SUMS"


def write_checksums(folder: Path) -> None:
    """Write the checksums of all files of a folder and its subfolders into it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def damaged_file(folder: Path, names: Sequence[str] = ()) -> str | None:
    """Return the first of these files, or of all, that is missing or has another checksum; None if all are whole.

    A folder without checksums is taken as whole: those that were written before there were any have none.
    """
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return CHECKSUMS
    if not lines:
        return CHECKSUMS
    digests = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name in names or digests:
        try:
            if sha256(folder / name) != digests.get(name):
                return name
        except OSError:
            return name
    return None


def sha256(path: Path) -> str:
    """Return the digest of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
