"""Presets for small cards: the update stays, every change is listed, and the command line says so."""

import io
import math

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from faircl.config import presets
from faircl.config.presets import PRESETS, Preset, fit
from faircl.config.run import load_config, resolve
from faircl.engine.network import build_model
from faircl.errors import UserError
from faircl.models import checkpointing
from faircl.runs.folder import RunFolder

TOUCHED = {"train.batch", "train.precision", "train.checkpointing", "optim.accumulate", "eval.batch"}
DEMO = load_config("demo")
SMALL = resolve({"data": "scenes", "model": "small", "method": "faircl"})


def config(batch=16, accumulate=1, crop=512, precision="fp32", checkpointing=False, eval_batch=16, norm="never"):
    train = {"batch": batch, "crop": crop, "precision": precision, "checkpointing": checkpointing, "frozen_norm": norm}
    sections = {"train": train, "optim": {"accumulate": accumulate}, "eval": {"batch": eval_batch}}
    return SMALL.model_copy(update={name: getattr(SMALL, name).model_copy(update=v) for name, v in sections.items()})


def flat(tree, prefix=""):
    """All settings of a tree as a.b: value."""
    if not isinstance(tree, dict):
        return {prefix.rstrip("."): tree}
    return {k: v for key, value in tree.items() for k, v in flat(value, f"{prefix}{key}.").items()}


def windows(name, crop):
    """Windows of a side that fit at a time, by area: counted in exact arithmetic, and never none."""
    return max(1, PRESETS[name].twice * 512**2 // crop**2)


def best_batch(batch, update, most, processes):
    """The batch by trying every size: largest first, even shares before uneven ones, two images each if they fit."""
    if batch <= most:
        return batch
    least = 2 * processes if most >= 2 * processes else processes
    sizes = [size for size in range(most, least - 1, -1) if update % size == 0]
    return next((size for size in sizes if size % processes == 0), next(iter(sizes), batch))


run_sizes = {
    "name": st.sampled_from(sorted(PRESETS)),
    "batch": st.integers(1, 96),
    "accumulate": st.integers(1, 6),
    "crop": st.integers(8, 4096),
    "processes": st.integers(1, 9),
}


@settings(max_examples=150, deadline=None)
@given(**run_sizes)
@example(name="8gb", batch=3, accumulate=1, crop=2048, processes=2)
@example(name="8gb", batch=7, accumulate=1, crop=2048, processes=2)
@example(name="8gb", batch=17, accumulate=1, crop=512, processes=1)
@example(name="24gb", batch=3, accumulate=1, crop=512, processes=8)
def test_an_update_keeps_its_images(name, batch, accumulate, crop, processes):
    before = config(batch, accumulate, crop)
    after, _, notes = fit(before, name, processes)
    update, most = batch * accumulate, windows(name, crop) * processes
    assert after.train.batch * after.optim.accumulate == update
    assert after.train.batch == best_batch(batch, update, most, processes) <= batch
    too_large = math.ceil(after.train.batch / processes) > windows(name, crop)
    assert too_large == any(f"an update of {update} images cannot be split to fit" in note for note in notes)
    if batch >= processes:
        assert after.train.batch >= processes  # every process has an image
    assert fit(after, name, processes)[:2] == (after, [])


@settings(max_examples=150, deadline=None)
@given(
    **run_sizes,
    precision=st.sampled_from(["fp32", "bf16", "fp16", "fp64"]),
    checkpointing=st.booleans(),
    eval_batch=st.integers(1, 20),
    norm=st.sampled_from(["never", "later", "always"]),
)
def test_every_change_is_listed_and_nothing_else_changes(name, processes, **chosen):
    before = config(**chosen)
    kept = before.model_dump(mode="json")
    after, changes, notes = fit(before, name, processes)
    assert before.model_dump(mode="json") == kept
    old, new = flat(kept), flat(after.model_dump(mode="json"))
    assert old.keys() == new.keys()
    differing = {key: (old[key], new[key]) for key in old if old[key] != new[key]}
    assert {change.key: (change.before, change.after) for change in changes} == differing
    assert len(changes) == len(differing)
    assert differing.keys() <= TOUCHED
    assert new["train.precision"] == {"fp32": "bf16", "fp64": "bf16"}.get(
        old["train.precision"], old["train.precision"]
    )
    kept = max(1, PRESETS[name].kept * 512**2 // before.train.crop**2) * processes
    assert new["train.checkpointing"] == (old["train.checkpointing"] or new["train.batch"] > kept)
    assert new["eval.batch"] == min(old["eval.batch"], 2)
    fewer = new["train.batch"] < old["train.batch"]
    assert any("BatchNorm, where the network has it, now sees" in note for note in notes) == (
        fewer and chosen["norm"] == "never"
    )
    assert type(after).model_validate(after.model_dump()) == after  # nothing that a file could not say


@pytest.mark.parametrize(
    ("name", "crop", "processes", "expected"),
    [
        ("8gb", 512, 1, (8, 6)),
        ("12gb", 512, 1, (12, 4)),
        ("24gb", 512, 1, (24, 2)),
        ("8gb", 1024, 1, (2, 24)),
        ("8gb", 256, 1, (24, 2)),
        ("8gb", 4096, 1, (1, 48)),
        ("8gb", 512, 2, (16, 3)),
        ("8gb", 512, 4, (24, 2)),
        ("8gb", 4096, 2, (2, 24)),
    ],
)
def test_an_update_of_48_by_hand(name, crop, processes, expected):
    after, _, _ = fit(config(24, 2, crop), name, processes)
    assert (after.train.batch, after.optim.accumulate) == expected


def test_changes_in_words():
    _, changes, notes = fit(config(24), "8gb")
    assert [str(change) for change in changes] == [
        "train.batch: 24 → 8",
        "train.precision: fp32 → bf16",
        "train.checkpointing: false → true",
        "optim.accumulate: 1 → 3",
        "eval.batch: 16 → 2",
    ]
    assert notes == [
        "BatchNorm, where the network has it, now sees 8 images at a time instead of 24; train.frozen_norm keeps its "
        "statistics",
    ]


def test_what_fits_already_is_left_alone():
    given_config = config(8, precision="bf16", checkpointing=True, eval_batch=1)
    assert fit(given_config, "8gb") == (given_config, [], [])


@pytest.mark.parametrize(("name", "words"), [("8g", "Did you mean '8gb'?"), ("16gb", "Known: "), ("", "Known: ")])
def test_an_unknown_preset_is_one_sentence(name, words):
    with pytest.raises(UserError, match="Unknown preset") as caught:
        fit(DEMO, name)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# ---- the command line


def test_config_show_prints_yaml_and_says_the_changes_elsewhere(cli, tmp_path):
    result = cli("config", "show", "demo", "--fit", "8gb", "--set", "train.crop=512", "--set", "train.batch=24")
    assert result.code == 0, result.err
    expected, changes, notes = fit(load_config("demo", ["train.crop=512", "train.batch=24"]), "8gb")
    assert result.err.splitlines() == [*(f"8gb: {change}" for change in changes), *(f"note: {note}" for note in notes)]
    assert len(changes) == 5
    assert len(notes) == 1
    saved = tmp_path / "card.yaml"
    saved.write_text(result.out, encoding="utf-8")
    assert load_config(str(saved)) == expected
    again = cli("config", "show", saved, "--fit", "8gb")
    assert (again.code, again.out, again.err) == (0, result.out, "")


def test_config_show_as_json(cli):
    result = cli("config", "show", "demo", "--fit", "24gb", "--json")
    assert yaml.safe_load(io.StringIO(result.out)) == fit(DEMO, "24gb")[0].model_dump(mode="json")


def test_without_the_option_nothing_is_said(cli):
    assert cli("config", "show", "demo").err == ""


@pytest.mark.parametrize("command", [("config", "show", "demo"), ("train", "demo", "--out", "run")])
def test_the_command_line_refuses_an_unknown_preset(command, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = cli(*command, "--fit", "80gb")
    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("faircl: Unknown preset '80gb'.")
    assert not list(tmp_path.iterdir())


def test_processes_are_counted_from_the_environment(cli, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    large = ("--set", "train.crop=512", "--set", "train.batch=48", "--fit", "8gb")
    first = cli("config", "show", "demo", *large)
    assert yaml.safe_load(first.out)["train"]["batch"] == 24
    assert "train.batch: 48 → 24" in first.err
    monkeypatch.setenv("RANK", "1")
    other = cli("config", "show", "demo", *large)
    assert (other.out, other.err) == (first.out, "")


@pytest.mark.slow
def test_a_fitted_run_trains(cli, tiny_flags, tmp_path, monkeypatch):
    """Batches of one, two kinds of saving at once: as many updates as without, and the network learns."""
    passes = []
    plain = checkpointing.checkpoint
    monkeypatch.setattr(checkpointing, "checkpoint", lambda *a, **k: [passes.append(1), plain(*a, **k)][1])
    monkeypatch.setitem(presets.PRESETS, "8gb", Preset(0, 0))
    more = ("--set", "train.epochs=4", "--set", "model.norm=group", "--set", "train.checkpointing=true")
    result = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags, *more, "--fit", "8gb", "--json")
    assert result.code == 0, result.err
    said = result.err.splitlines()
    assert {
        "8gb: train.batch: 8 → 1",
        "8gb: optim.accumulate: 1 → 8",
        "8gb: train.precision: fp32 → bf16",
        "8gb: eval.batch: 4 → 2",
    } <= set(said)
    folder = RunFolder.open(tmp_path / "run")
    used = folder.config()
    assert (used.train.batch, used.optim.accumulate, used.train.checkpointing) == (1, 8, True)
    records = folder.records("train")
    first, second = ([r for r in records if r["step"] == step] for step in (0, 1))
    images = [len(step["train"]) for step in folder.scenario()["steps"]]
    assert (len(first), len(second)) == (math.ceil(4 * images[0] / 8), math.ceil(images[1] / 8))
    assert len(passes) == 2 * (1 + 8 * len(records))  # both blocks: once on shapes alone, then at every batch
    assert all(math.isfinite(record["loss"]) for record in records)
    seg = [record["terms"]["seg"] for record in first]
    assert sum(seg[-3:]) < 0.97 * sum(seg[:3])
    assert folder.finished_steps() == 2
    again = cli("train", "demo", "--out", tmp_path / "run", *tiny_flags, *more, "--fit", "8gb", "--resume")
    assert again.code == 0, again.err


@pytest.mark.parametrize(("name", "twice"), [("8gb", True), ("12gb", False), ("24gb", False)])
def test_activations_are_computed_twice_only_where_they_must(name, twice):
    after, _, _ = fit(config(16), name)
    assert after.train.checkpointing is twice
    assert after.train.batch == (16 if name == "24gb" else 8)


def test_a_fitted_network_is_built_with_blocks_to_compute_twice():
    fitted, _, _ = fit(config(16), "8gb")
    blocks = list(build_model(fitted).blocks())
    assert blocks
    assert all(isinstance(block, checkpointing._CheckpointedBlock) for block in blocks)
