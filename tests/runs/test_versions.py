"""The versions of a run: which one is in use, which are unfinished, removing and copying them."""

import os
from dataclasses import replace

import pytest
from street_folders import digests

from faircl.errors import UserError
from faircl.runs.versions import ClassChange, Version, VersionChain, copy_run

ONE = Version(
    number=1,
    parent=0,
    status="accepted",
    kind="add-classes",
    what="added van",
    made="2026-01-01T00:00:00+00:00",
    code="0",
    model_sha256="aa",
    parent_sha256="bb",
    data={"images": 3},
    drop=0.5,
    changes=(ClassChange(1, "road", 80.0, 79.5), ClassChange(2, "van", None, 10.0)),
)


@pytest.fixture
def chain(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("seed: 0\n")
    (run / "weights").write_bytes(b"0")
    return VersionChain.open(run)


def add(chain: VersionChain, number: int, status: str | None = "accepted") -> None:
    folder = chain.folder(number)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"seed: {number}\n")
    (folder / "scenario.json").write_text('{"steps": [{}, {}]}')
    (folder / "steps" / "01").mkdir(parents=True)
    if status:
        chain.write(replace(ONE, number=number, status=status))


def test_a_run_without_versions_is_version_0(chain):
    assert (chain.current(), chain.next(), chain.unfinished(), chain.finished()) == (0, 1, None, [])
    assert chain.find(None) == chain.find(0) == chain.run


def test_a_version_that_is_removed_while_its_number_is_read_is_none(chain, monkeypatch):
    add(chain, 1)
    listed = os.listdir

    def removed(folder):
        names = listed(folder)
        if folder == chain.run / "versions":
            return [*names, "02"]  # gone again when it is looked at
        if folder == chain.folder(3):
            raise FileNotFoundError(folder)
        return names

    monkeypatch.setattr("faircl.runs.versions.os.listdir", removed)
    assert (chain.current(), chain.next()) == (1, 2)
    chain.folder(3).mkdir()
    assert (chain.current(), chain.next()) == (1, 2)


def test_the_newest_accepted_version_is_in_use(chain):
    for number, status in ((1, "accepted"), (2, "accepted"), (3, "rejected")):
        add(chain, number, status)
    add(chain, 4, None)
    assert (chain.current(), chain.next(), chain.unfinished()) == (2, 5, 4)
    assert chain.find(None) == chain.run / "versions" / "02"
    assert chain.find(3) == chain.run / "versions" / "03"
    with pytest.raises(UserError, match="has no version 4; it has: 0, 1, 2, 3"):
        chain.find(4)


def test_a_version_comes_back_as_it_was(chain):
    add(chain, 1)
    assert chain.finished() == [ONE]
    assert [one.change for one in chain.finished()[0].changes] == [-0.5, None]


@pytest.mark.parametrize("text", ["{}", '{"format": 99, "changes": []}', "no json"])
def test_a_damaged_version(chain, text):
    add(chain, 1)
    (chain.folder(1) / "version.json").write_text(text)
    with pytest.raises(UserError, match=r"version\.json"):
        chain.current()


def test_removing_all_versions_leaves_the_bytes_of_the_run(chain):
    before = digests(chain.run)
    add(chain, 1)
    with_one = digests(chain.run)
    add(chain, 2, "rejected")
    with chain.locked():
        chain.remove(2)
    assert digests(chain.run) == with_one
    with chain.locked():
        chain.remove(1)
    assert digests(chain.run) == before
    assert not (chain.run / "versions").exists()


def test_one_process_at_a_time_changes_versions(chain):
    import multiprocessing

    add(chain, 1)
    with chain.locked():
        process = multiprocessing.get_context("fork").Process(target=_lock, args=(chain,))
        process.start()
        process.join()
    assert process.exitcode == 3


def _lock(chain: VersionChain) -> None:
    try:
        with chain.locked():
            pass
    except UserError:
        raise SystemExit(3) from None


def test_a_copy_has_all_that_is_finished(chain, tmp_path):
    add(chain, 1)
    add(chain, 2, None)
    (chain.run / "checkpoints").mkdir()
    (chain.run / "checkpoints" / "x").write_bytes(b"1")
    copy_run(chain.run, tmp_path / "new" / "copy")
    found = digests(tmp_path / "new" / "copy")
    assert found == {
        name: digest
        for name, digest in digests(chain.run).items()
        if not name.startswith(("checkpoints", "versions/02"))
    }


def test_a_copy_leaves_out_links_to_nothing(chain, tmp_path):
    (chain.run / "log").symlink_to(tmp_path / "gone")
    copy_run(chain.run, tmp_path / "copy")
    assert not (tmp_path / "copy" / "log").is_symlink()
    assert (tmp_path / "copy" / "config.yaml").is_file()


def test_a_copy_overwrites_nothing(chain, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("1")
    with pytest.raises(UserError, match="is there already"):
        copy_run(chain.run, tmp_path / "full")


def test_folders_that_are_no_run(chain, tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        VersionChain.open(tmp_path)
    add(chain, 1)
    with pytest.raises(UserError, match="is one version of"):
        VersionChain.open(chain.folder(1))


def test_a_run_in_a_hugging_face_folder(chain, tmp_path):
    hub = tmp_path / "hub"
    hub.mkdir()
    chain.run.rename(hub / "faircl")
    found = VersionChain.open(hub)
    assert found.run == hub / "faircl"
    add(found, 1)
    assert VersionChain.open(hub).current() == 1


def test_a_version_that_lost_its_network_is_not_used(chain):
    add(chain, 1)
    (chain.folder(1) / "steps" / "01").rmdir()
    with pytest.raises(UserError, match=r"Version 1 of .* has lost its network"):
        chain.find(None)


def test_a_version_in_the_wrong_folder(chain):
    add(chain, 1)
    chain.folder(1).rename(chain.folder(5))
    with pytest.raises(UserError, match="holds version 1; give the folder its own number"):
        chain.finished()


def test_other_files_among_the_versions_are_ignored_and_stay(chain):
    add(chain, 1)
    place = chain.run / "versions"
    for name in (".DS_Store", "notes.txt", "07x", "x7.part"):
        (place / name).write_text("mine")
    for name in (".idea", "07y", "old.part", "old.removed"):
        (place / name).mkdir()
        (place / name / "config.yaml").write_text("mine")
    before = digests(chain.run)
    assert (chain.current(), chain.next(), chain.unfinished()) == (1, 2, None)
    with chain.locked():
        pass
    assert digests(chain.run) == before
    with chain.locked():
        chain.remove(1)
    assert digests(chain.run) == {name: digest for name, digest in before.items() if not name.startswith("versions/01")}
    assert (chain.current(), chain.next()) == (0, 1)


def test_an_empty_folder_of_a_number_is_ignored(chain):
    add(chain, 1)
    (chain.run / "versions" / "03").mkdir()
    (chain.run / "versions" / "03" / ".DS_Store").write_text("")
    assert (chain.current(), chain.next(), chain.unfinished()) == (1, 2, None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("03/steps/00/model.json", "03 is no version: expected a folder with config.yaml; restore it from a copy"),
        ("03/.env", "03 is no version: expected a folder with config.yaml"),
        ("03/.git/HEAD", "03 is no version: expected a folder with config.yaml"),
        ("03", "03 is no version: expected a folder with config.yaml"),
        ("3/config.yaml", "3 is not named as a version is: expected 03; rename it"),
        ("00/config.yaml", "00 is not named as a version is: expected 01; rename it"),
    ],
)
def test_a_number_that_is_no_version(chain, name, expected):
    path = chain.run / "versions" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    before = digests(chain.run)
    for use in (chain.finished, chain.current, chain.next, lambda: chain.find(None)):
        with pytest.raises(UserError, match=expected):
            use()
    with pytest.raises(UserError, match=expected), chain.locked():
        chain.check_finished()
    assert digests(chain.run) == before


def test_what_killed_processes_left_goes_with_the_next_change(chain):
    before = digests(chain.run)
    for name in ("01", ".02.removed", ".03.part"):
        (chain.run / "versions" / name / "agreement").mkdir(parents=True)
    with chain.locked():
        assert chain.next() == 1
    assert digests(chain.run) == before
    assert not (chain.run / "versions").exists()
