"""Adding classes to a tiny run: what is written, what is refused, and that it can be undone."""

import multiprocessing
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from street_folders import OLD, digests, street_folder, without_background
from tiny_runs import Silent

import faircl
from faircl.data.masks import write_mask
from faircl.deploy.adding.verdict import judge
from faircl.engine import step_results
from faircl.errors import UserError
from faircl.runs.folder import RunFolder
from faircl.runs.versions import VersionChain

QUICK = {"train.later_epochs": 1, "train.batch": 4, "train.accelerator": "cpu"}


@pytest.fixture(autouse=True)
def _no_page(monkeypatch):
    monkeypatch.setattr(step_results, "write_run_page", lambda path: None)


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    """Return the folders of old classes, of two new ones on other images, and of all classes to check on."""
    root = tmp_path_factory.mktemp("streets")
    names = {"old": OLD, "van": ("van",), "fence": ("fence", "road"), "check": (*OLD, "van", "fence")}
    return {name: street_folder(root / name, classes, seed) for seed, (name, classes) in enumerate(names.items())}


@pytest.fixture(scope="module")
def trained(streets, tiny_train, tmp_path_factory):
    return tiny_train(tmp_path_factory.mktemp("trained") / "run", "scenario.task=3-1", root=streets["old"]).path


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def add(run, data, **arguments):
    return faircl.add_classes(run, data, **{"settings": QUICK, "reporter": Silent(), **arguments})


def test_a_class_is_added_and_undone(run, streets):
    before = digests(run)
    version = add(run, streets["van"], holdout=streets["check"], max_drop=100)
    assert (version.number, version.parent, version.status) == (1, 0, "accepted")
    assert version.what == "added van"
    assert version.data["images"] == 12
    assert version.measured == "6 holdout images"
    assert {name: digest for name, digest in digests(run).items() if not name.startswith("versions/")} == before

    predictor = faircl.load(run, device="cpu")
    assert list(predictor.names.values()) == ["background", *OLD, "van"]
    mask = predictor.predict(next((streets["check"] / "images" / "test").glob("*.png"))).mask
    assert set(np.unique(mask)) <= set(predictor.names)
    assert list(faircl.load(run, device="cpu", version=0).names.values()) == ["background", *OLD]
    (metrics,) = faircl.evaluate(run, data=streets["check"], reporter=Silent())
    assert [c.iou for c in metrics.classes] == pytest.approx([c.after for c in version.changes], nan_ok=True)

    assert faircl.undo(run) == 1
    assert digests(run) == before


def test_old_weights_are_those_of_the_run_and_ids_never_change(run, streets):
    add(run, streets["van"])
    version = add(run, streets["fence"])
    assert (version.number, version.parent) == (2, 1)
    assert [(c.id, c.name) for c in version.changes] == [
        (0, "background"),
        *enumerate((*OLD, "van", "fence"), start=1),
    ]
    chain = VersionChain.open(run)
    first, second = (RunFolder(chain.folder(number)) for number in (1, 2))
    old, kept = (load_file(path / "model.safetensors") for path in (run / "steps" / "01", first.step_path(0)))
    assert all(torch.equal(value, kept[name]) for name, value in old.items())
    old, kept = (load_file(path / "model.safetensors") for path in (first.step_path(1), second.step_path(0)))
    assert all(torch.equal(value, kept[name]) for name, value in old.items())
    assert second.load_scenario().steps[1].also_labelled == (1,)  # road, which these masks label too
    earlier = [folder.load_scenario().earlier_steps for folder in (RunFolder(run), first, second)]
    assert earlier == [0, 1, 2]  # steps 0 and 1 of the run, then van; random numbers go on counting
    memory = load_file(second.step_path(1) / "method.safetensors")["memory.filled"]
    assert len(memory) == 1 + len(OLD) + 2


@pytest.mark.slow
def test_a_version_that_hurts_is_rejected_and_kept_beside(run, streets, cli, monkeypatch):
    monkeypatch.setattr("faircl.deploy.adding.add.judge", _reject)  # the limits are those of test_verdict.py
    words = ("--data", streets["van"], "--holdout", streets["check"], "--epochs", 1, "--batch", 4, "--device", "cpu")
    result = cli("add-classes", run, *words)
    assert result.code == 1
    assert "rejected: old classes lost" in result.out
    assert "version 0 stays in use" in result.out
    assert [one.status for one in faircl.versions(run)] == ["rejected"]
    assert len(faircl.load(run, device="cpu").names) == 1 + len(OLD)
    listed = cli("versions", "list", run)
    assert "rejected" in listed.out
    assert "0 (current)" in listed.out
    assert "added van" in cli("versions", "show", run, 1).out
    assert "version 1 is removed; version 0 is in use" in cli("versions", "undo", run).out


def _reject(*args):
    return replace(judge(*args), reason="old classes lost 9.9 points on average")


@pytest.mark.slow
def test_with_out_the_run_stays_as_it_is(run, streets, tmp_path):
    before = digests(run)
    version = add(run, streets["van"], out=tmp_path / "copy")
    assert digests(run) == before
    assert version.agreement is not None
    assert version.drop is None
    assert faircl.versions(tmp_path / "copy")[0] == version
    assert not (tmp_path / "copy" / "versions" / "01" / "agreement").exists()
    faircl.undo(tmp_path / "copy")
    assert digests(tmp_path / "copy") == before


@pytest.mark.slow
def test_nothing_of_the_old_data_is_needed(run, streets, tmp_path):
    hidden = shutil.move(streets["old"], tmp_path / "hidden")
    try:
        assert add(run, streets["van"]).accepted
    finally:
        shutil.move(hidden, streets["old"])


@pytest.mark.slow
def test_an_interrupted_addition_goes_on(run, streets):
    whole = add(run, streets["van"])
    faircl.undo(run)
    with pytest.raises(KeyboardInterrupt):
        add(run, streets["van"], reporter=Silent(stop_at="step 1 evaluate"))
    assert VersionChain.open(run).unfinished() == 1
    with pytest.raises(UserError, match=r"Version 1 of .* is unfinished; continue it"):
        add(run, streets["van"])
    version = faircl.add_classes(run, resume=True, reporter=Silent())
    assert version.model_sha256 == whole.model_sha256
    with pytest.raises(UserError, match="nothing to continue"):
        faircl.add_classes(run, resume=True, reporter=Silent())


def test_a_version_that_comes_meanwhile_is_not_lost(run, streets):
    """Whoever changes the versions holds their lock from the first look at them."""
    with VersionChain.open(run).locked():
        process = multiprocessing.get_context("fork").Process(target=_add_elsewhere, args=(run, streets["van"]))
        process.start()
        process.join()
    assert process.exitcode == 3
    assert faircl.versions(run) == []


def _add_elsewhere(run, data):
    try:
        add(run, data)
    except UserError as error:
        raise SystemExit(3 if "Another process" in str(error) else 4) from None


@pytest.mark.slow
def test_a_finished_training_survives_what_comes_after_it(run, streets, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(VersionChain, "write", _fail)
        with pytest.raises(UserError, match="no room"):
            add(run, streets["van"])
    assert (run / "versions" / "01" / "steps" / "01" / "model.safetensors").is_file()
    assert faircl.add_classes(run, resume=True, reporter=Silent()).accepted


def test_a_holdout_that_is_learned_from_is_refused(run, streets):
    both = {"name": "folder", "root": str(streets["check"]), "train": "test"}
    with pytest.raises(UserError, match="6 of the 6 holdout images are among the new images"):
        add(run, both, holdout=streets["check"])


def test_a_copy_that_failed_is_removed(run, streets, monkeypatch, tmp_path):
    monkeypatch.setattr("faircl.deploy.adding.add.train", _fail)
    with pytest.raises(UserError, match="no room"):
        add(run, streets["van"], out=tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_failure_before_training_leaves_nothing(run, streets, monkeypatch):
    before = digests(run)
    monkeypatch.setattr("faircl.deploy.adding.add.train", _fail)
    with pytest.raises(UserError, match="no room"):
        add(run, streets["van"])
    assert digests(run) == before


def test_a_failed_version_is_gone_even_if_its_removal_is_killed(run, streets, monkeypatch):
    def fail(*args, **kwargs):
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # killed before the first file is removed
        _fail()

    before = digests(run)
    monkeypatch.setattr("faircl.deploy.adding.add.train", fail)
    with pytest.raises(UserError, match="no room"):
        add(run, streets["van"])
    assert VersionChain(run).unfinished() is None
    monkeypatch.undo()
    with VersionChain(run).locked():  # as the next command has it
        pass
    assert digests(run) == before


def test_a_failure_before_the_first_file_is_the_one_that_is_said(run, streets, monkeypatch):
    before = digests(run)
    monkeypatch.setattr("faircl.deploy.adding.add._begun", _fail)
    with pytest.raises(UserError, match="no room"):
        add(run, streets["van"])
    assert digests(run) == before


def _fail(*args, **kwargs):
    raise UserError("no room")


@pytest.mark.slow
def test_a_damaged_model_is_found_before_anything_is_announced(run, streets):
    with (run / "steps/01/method.safetensors").open("ab") as file:
        file.write(b"more")
    reporter = Silent()
    with pytest.raises(UserError, match=r"method\.safetensors is missing or damaged"):
        add(run, streets["van"], reporter=reporter)
    assert reporter.said == []
    assert not (run / "versions").exists()


def test_a_run_that_lost_its_last_step_is_damaged(run, streets):
    shutil.rmtree(run / "steps/01")
    with pytest.raises(UserError, match=r"steps/01 is missing, though metrics\.jsonl has its evaluation"):
        add(run, streets["van"])
    assert not (run / "versions").exists()


def test_a_version_that_lost_its_network_can_be_undone(run, streets):
    add(run, streets["van"])
    shutil.rmtree(run / "versions/01/steps/01")
    with pytest.raises(UserError, match=r"Version 1 of .* has lost its network.*versions undo"):
        add(run, streets["fence"])
    assert faircl.undo(run) == 1


def test_sources_that_label_different_classes_come_one_after_the_other(run, streets, tmp_path):
    both = street_folder(tmp_path / "both", ("van", "fence"), seed=9)
    for index, path in enumerate(sorted((both / "masks" / "train").glob("*.png"))):
        if index >= 8:  # the last four images label fences alone
            mask = np.array(Image.open(path))
            write_mask(path, np.where(mask == 1, 0, mask).astype(np.uint8))
    labelled = {"train-0000[0-7]": ["van"], "*": ["fence"]}
    version = add(run, both, labelled=labelled, settings=QUICK)
    assert [(one.what, one.data["images"]) for one in faircl.versions(run)] == [("added van", 8), ("added fence", 4)]
    assert version.number == 2
    second = RunFolder(VersionChain.open(run).folder(2)).load_scenario()
    assert second.steps[1].images == tuple(f"train-{k:05d}" for k in range(8, 12))


@pytest.mark.slow
def test_complete_masks_hide_nothing(run, streets):
    version = add(run, streets["check"], classes=["van"], complete=True)
    scenario = RunFolder(VersionChain.open(run).folder(1)).load_scenario()
    assert scenario.setting == "sequential"
    table = scenario.train_table(1)
    assert table[:7].tolist() == [0, 1, 2, 3, 4, 5, 65535]  # fence is a class of nobody: not in the model's list
    assert version.accepted


@pytest.mark.slow
def test_a_model_without_background(streets, tiny_train, tmp_path):
    old = without_background(shutil.copytree(streets["old"], tmp_path / "old"))
    trained = tiny_train(tmp_path / "run", "scenario.task=3-1", root=old).path
    version = add(
        trained, streets["van"], holdout=without_background(shutil.copytree(streets["check"], tmp_path / "c"))
    )
    assert [c.name for c in version.changes] == [*OLD, "van"]
    scenario = RunFolder(VersionChain.open(trained).folder(1)).load_scenario()
    assert not scenario.background
    assert scenario.train_table(1)[[0, 3, 4, 254, 255]].tolist() == [65534, 65534, 4, 65534, 65535]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mib", "finetune", "joint", "faircl-paper", "{name: ewf, method: mib}"])
def test_a_model_of_another_method(method, streets, tiny_train, tmp_path):
    trained = tiny_train(tmp_path / "run", "scenario.task=3-1", f"method={method}", root=streets["old"]).path
    version = add(trained, streets["van"])
    assert version.accepted
    state = load_file(trained / "versions" / "01" / "steps" / "01" / "method.safetensors")
    assert len(state["distribution.share"]) == 1 + len(OLD) + 1
    assert state["distribution.share"].gt(0).all()


def test_wrong_use_is_one_sentence_and_writes_nothing(run, streets, cli, tmp_path):
    before = digests(run)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    (tmp_path / "lists.yaml").write_text("'*': van\n")
    (tmp_path / "other.yaml").write_text("'site/*': [van]\n")
    van, check = streets["van"], streets["check"]
    for words, expected in (
        ([tmp_path / "nowhere", "--data", van], "is not a run folder"),
        ([run], "No new data is given"),
        ([run, "--data", tmp_path / "nowhere"], "neither a folder nor a reader"),
        ([run, "--data", "nowhere", "--root", van], "There is no reader 'nowhere'"),
        ([run, "--data", streets["old"]], "has no new class"),
        ([run, "--data", van, "--classes", "tram"], "has no class 'tram'"),
        ([run, "--data", van, "--classes", "road"], "knows class 'road' already"),
        ([run, "--data", van, "--same", "van"], "NAME=KNOWN"),
        ([run, "--data", van, "--same", "van=lorry"], "class of the model 'lorry'"),
        ([run, "--data", van, "--out", tmp_path / "full"], "is there already"),
        ([run, "--data", van, "--holdout", van], "shows none of the 4 classes"),
        ([run, "--data", van, "--holdout", tmp_path / "nowhere"], "neither a folder nor a reader"),
        ([run, "--data", van, "--max-drop", -1], "max_drop is -1"),
        ([run, "--data", van, "--max-drop", 1], "give some with --holdout"),
        ([run, "--data", tmp_path, "--device", "gpu"], "train.accelerator"),
        ([run, "--data", van, "--holdout", check, "--max-class-drop", "nan"], "max_class_drop is nan"),
        ([run, "--data", van, "--labelled", tmp_path / "nowhere.yaml"], "Cannot read"),
        ([run, "--data", van, "--labelled", tmp_path / "lists.yaml"], "holds no lists"),
        ([run, "--data", van, "--labelled", tmp_path / "other.yaml"], "matches none of the 12 new images"),
        ([run, "--resume"], "nothing to continue"),
        ([run, "--resume", "--data", van], "with resume give the run alone"),
        ([run, "--resume", "--max-drop", 1], "with resume give the run alone"),
        ([run, "--data", van, "--set", "model.width=16"], "Setting model.width cannot be changed here"),
        ([run, "--data", van, "--set", "method.name=mib"], "Classes are added by faircl, not by mib"),
        ([run, "--data", van, "--set", "train.epoch=1", "--out", tmp_path / "new"], "Did you mean 'epochs'"),
    ):
        result = cli("add-classes", *words)
        assert (result.code, len(result.err.strip().splitlines()[-1:])) == (2, 1), words
        assert expected in result.err.splitlines()[-1], (words, result.err)
        assert "Traceback" not in result.err
    assert digests(run) == before
    assert not (tmp_path / "new").exists()
    assert cli("versions", "undo", run).code == 2
    assert cli("versions", "show", run).code == 2
    assert cli("eval", run, "--version", 1).code == 2
    assert cli("eval", run, "--data", van).code == 2
