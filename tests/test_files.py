"""Durable writing: what is renamed has been flushed, and the rename is flushed as well."""

import errno
import os
import stat

import pytest

from faircl.checksums import damaged_file, write_checksums
from faircl.errors import UserError
from faircl.files import write_folder, write_text


@pytest.fixture
def calls(monkeypatch):
    """The calls that reach the disk, in order: ("flush", path) and ("rename", from, to)."""
    made, fsync, replace = [], os.fsync, os.replace

    def flushed(handle):
        made.append(("flush", os.readlink(f"/proc/self/fd/{handle}")))
        return fsync(handle)

    def renamed(source, target):
        made.append(("rename", str(source), str(target)))
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    return made


needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="names of open files are read from /proc")


@needs_proc
def test_a_text_is_flushed_before_and_after_its_rename(calls, tmp_path):
    write_text(tmp_path / "a.txt", "new")
    part = str(tmp_path / ".a.txt.part")
    assert calls == [("flush", part), ("rename", part, str(tmp_path / "a.txt")), ("flush", str(tmp_path))]
    assert (tmp_path / "a.txt").read_text() == "new"


@needs_proc
def test_every_file_and_folder_of_a_folder_is_flushed_before_its_rename(calls, tmp_path):
    def fill(path):
        (path / "inner").mkdir()
        (path / "inner/a").write_text("a")
        (path / "b").write_text("b")

    write_folder(tmp_path / "steps/00", fill)
    part = str(tmp_path / "steps/.00.part")
    at = calls.index(("rename", part, str(tmp_path / "steps/00")))
    before = {path for kind, path, *_ in calls[:at]}
    assert before == {part, *(f"{part}/{name}" for name in ("inner", "inner/a", "b", "SHA256SUMS"))}
    assert calls[at + 1 :] == [("flush", str(tmp_path / "steps")), ("flush", str(tmp_path))]


def test_a_folder_is_replaced_whole(tmp_path):
    for text in ("old", "new"):
        write_folder(tmp_path / "00", lambda path, text=text: (path / text).write_text(text) and None)
    assert sorted(path.name for path in (tmp_path / "00").iterdir()) == ["SHA256SUMS", "new"]
    assert [path.name for path in tmp_path.iterdir()] == ["00"]


def test_a_full_disk_leaves_the_old_folder(tmp_path, monkeypatch):
    write_folder(tmp_path / "00", lambda path: (path / "a").write_text("old") and None)

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_folder(tmp_path / "00", lambda path: (path / "a").write_text("new") and None)
    assert (tmp_path / "00/a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["00"]


def test_folders_that_cannot_be_flushed(tmp_path, monkeypatch):
    """As on some network file systems, and in a folder of somebody else that may be entered but not listed."""
    fsync, open_ = os.fsync, os.open

    def unsupported(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return fsync(handle)

    monkeypatch.setattr(os, "fsync", unsupported)
    write_folder(tmp_path / "steps/00", lambda path: (path / "a").write_text("a") and None)
    assert damaged_file(tmp_path / "steps/00") is None

    def forbidden(path, *how):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return open_(path, *how)

    monkeypatch.setattr(os, "open", forbidden)
    write_text(tmp_path / "a.txt", "new")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_every_flipped_bit_is_found(tmp_path):
    (tmp_path / "a").write_bytes(b"faircl")
    write_checksums(tmp_path)
    assert damaged_file(tmp_path) is None
    for byte in range(6):
        for bit in range(8):
            data = bytearray(b"faircl")
            data[byte] ^= 1 << bit
            (tmp_path / "a").write_bytes(data)
            assert damaged_file(tmp_path) == "a"
    (tmp_path / "a").unlink()
    assert damaged_file(tmp_path) == "a"
    assert damaged_file(tmp_path, ["b"]) == "b"
    (tmp_path / "SHA256SUMS").write_text("")
    assert damaged_file(tmp_path) == "SHA256SUMS"


def test_files_have_the_mode_that_the_user_wants(tmp_path):
    before = os.umask(0o027)
    try:
        write_folder(tmp_path / "00", lambda path: (path / "a").write_text("a") and None)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "00").iterdir()} == {0o640}
