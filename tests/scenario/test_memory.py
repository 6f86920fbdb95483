"""The replay memory: what it keeps, with which labels, and what training makes of it."""

import json

import numpy as np
import pytest

from faircl.data.label_index import LabelIndex
from faircl.data.sample import Classes
from faircl.errors import UserError
from faircl.labels import IGNORE, UNLABELLED
from faircl.scenario import build_scenario
from faircl.scenario.replay_memory import choose_balanced, combined_label_table, replay_memories
from faircl.seeding import generator

# Background, then classes 1 to 4; steps learn 1 and 2, then 3, then 4.
PRESENCE = [
    [9, 5, 0, 0, 0],
    [9, 5, 0, 0, 0],
    [9, 5, 2, 0, 0],
    [9, 0, 2, 3, 0],
    [9, 5, 0, 3, 0],
    [9, 0, 0, 3, 0],
    [9, 0, 0, 0, 7],
    [9, 5, 0, 0, 7],
]
SPLIT = ((1, 2), (3,), (4,))


def scenario(background=True, setting="overlapped"):
    presence = np.array(PRESENCE if background else [row[1:] for row in PRESENCE])
    split = SPLIT if background else tuple(tuple(i - 1 for i in step) for step in SPLIT)
    index = LabelIndex(tuple(f"img{i}" for i in range(len(presence))), presence)
    known = Classes(tuple(f"c{i}" for i in range(presence.shape[1])), background)
    return build_scenario(known, split, index, index, task="t", setting=setting, joint=False), index


def test_images_come_from_what_was_at_hand_and_keep_their_labels():
    made, index = scenario()
    first, second, third = replay_memories(made, index, 4, seed=0)
    assert not first.images
    assert set(second.images) <= set(made.steps[0].images)
    assert all(steps == (0,) for steps in second.images.values())
    assert set(third.images) <= set(second.images) | set(made.steps[1].images)
    for id, steps in third.images.items():
        expected = ((0,) if id in second.images else ()) + ((1,) if id in made.steps[1].images else ())
        assert steps == expected
    assert len(second.images) == len(third.images) == 4


def test_every_class_with_a_label_is_kept():
    made, index = scenario()
    for size in (3, 4, 5):
        _, second, third = replay_memories(made, index, size, seed=1)
        rows = {id: PRESENCE[int(id[3:])] for id in third.images}
        # Which of classes 1, 2 and 3 the known labels of the kept images show.
        shown = {c for id, steps in third.images.items() for s in steps for c in SPLIT[s] if rows[id][c]}
        assert shown == {1, 2, 3}
        assert second.images


def test_choice_is_as_even_as_can_be():
    shown = np.zeros((60, 3), bool)
    shown[:50, 0] = True
    shown[50:57, 1] = True
    shown[57:, 2] = True
    picks = choose_balanced(shown, 9, generator(0, "x"))
    assert shown[picks].sum(0).tolist() == [3, 3, 3]
    picks = choose_balanced(shown, 15, generator(0, "x"))
    assert shown[picks].sum(0).tolist() == [6, 6, 3]  # the third has no more
    assert len(set(picks)) == 15
    assert sorted(choose_balanced(shown, 100, generator(0, "x"))) == list(range(60))
    assert choose_balanced(np.zeros((4, 2), bool), 3, generator(0, "x")) == []


def test_choice_depends_on_the_seed_alone():
    made, index = scenario()
    assert replay_memories(made, index, 2, seed=0) == replay_memories(made, index, 2, seed=0)
    assert len({tuple(replay_memories(made, index, 2, seed=s)[1].images) for s in range(8)}) > 1


@pytest.mark.parametrize(("background", "hidden"), [(True, 0), (False, UNLABELLED)])
def test_tables_show_the_labels_of_all_steps_that_gave_some(background, hidden):
    made, _ = scenario(background)
    first = int(background)
    raw = [first + k for k in range(4)]  # raw ids of the classes of steps 0, 0, 1 and 2
    table = combined_label_table(made, (0, 2))
    assert [int(table[i]) for i in raw] == [first, first + 1, hidden, first + 3]
    assert table[200] == IGNORE
    assert (combined_label_table(made, (1,)) == made.train_table(1)).all()


def test_an_image_that_comes_again_has_both_steps_labels():
    made, index = scenario()
    memory = replay_memories(made, index, 8, seed=0)[1]
    tables = memory.tables(made, 1)
    assert set(tables) == set(memory.images)
    again = set(memory.images) & set(made.steps[1].images)
    assert again == {"img3", "img4"}
    for id, table in tables.items():
        assert [int(table[i]) for i in range(5)] == ([0, 1, 2, 3, 0] if id in again else [0, 1, 2, 0, 0])


@pytest.mark.parametrize(("background", "hidden"), [(True, 0), (False, UNLABELLED)])
def test_all_labels_are_those_of_all_classes_so_far(background, hidden):
    made, index = scenario(background)
    first = int(background)
    plain, full = (replay_memories(made, index, 4, seed=0, all_labels=every) for every in (False, True))
    for step, seen in ((1, 3), (2, 4)):
        assert full[step].images == plain[step].images  # the same choice
        tables = full[step].tables(made, step)
        assert list(tables) == list(full[step].images)
        for table in tables.values():
            # Channels follow the order of raw ids here; classes of later steps stay hidden.
            assert [int(table[first + k]) for k in range(4)] == [first + k if k < seen else hidden for k in range(4)]
            assert table[200] == IGNORE


# Through the engine


def test_training_remembers(tiny_train, silent, tmp_path):
    options = ("method=finetune", "memory.images=6", "scenario.task=4-3-3")
    voice = silent()
    whole = tiny_train(tmp_path / "whole", *options, reporter=voice)
    assert any("6 in memory" in line for line in voice.said)
    kept = json.loads((whole.step_path(1) / "memory.json").read_text())
    assert len(kept) == 6
    assert set(map(tuple, kept.values())) <= {(0,), (1,), (0, 1)}
    assert not (whole.step_path(2) / "memory.json").exists()
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "parts", *options, reporter=silent("step 2 train"))
    parts = tiny_train(tmp_path / "parts", *options, resume=True)
    plain = tiny_train(tmp_path / "plain", "method=finetune", "scenario.task=4-3-3")
    files = [run.step_path(2) / "model.safetensors" for run in (whole, parts, plain)]
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()
    first = [run.step_path(0) / "model.safetensors" for run in (whole, plain)]
    assert first[0].read_bytes() == first[1].read_bytes()


def test_training_with_all_labels(tiny_train, tmp_path):
    """Images that a step labelled and no memory kept until then gain the labels of the steps before it."""
    options = ("method=finetune", "memory.images=6", "scenario.task=4-3-3")
    step, every = (tiny_train(tmp_path / kind, *options, f"memory.labels={kind}") for kind in ("step", "all"))
    for k, same in ((0, True), (1, True), (2, False)):
        files = [(run.step_path(k) / "model.safetensors").read_bytes() for run in (step, every)]
        assert (files[0] == files[1]) == same
    kept = [(run.step_path(1) / "memory.json").read_text() for run in (step, every)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("method", ["faircl", "plop"])
def test_methods_that_label_take_it_too(method, tiny_train, tmp_path):
    assert tiny_train(tmp_path / "run", f"method={method}", "memory.images=5").finished_steps() == 2


def test_windows_of_a_memory_are_scanned_without_labels(tiny_train, tmp_path, monkeypatch):
    from faircl.methods.faircl import FairCL

    seen = []
    scan_batch = FairCL.scan_batch

    def watch(self, scanned, context):
        seen.extend(zip(scanned.windows, (scanned.labels == IGNORE).flatten(1).all(1).tolist(), strict=True))
        scan_batch(self, scanned, context)

    monkeypatch.setattr(FairCL, "scan_batch", watch)
    run = tiny_train(tmp_path / "run", "memory.images=6", "method.windows=2", "train.later_epochs=20")
    images = len(run.load_scenario().steps[1].images)
    memory = {number for number, hidden in seen if hidden}
    assert sorted(number for number, _ in seen) == list(range(2 * images + len(memory)))
    assert memory == set(range(2 * images, 2 * images + len(memory)))
    assert memory


def test_a_batch_of_one_has_no_room_for_a_memory(tiny_train, tmp_path):
    with pytest.raises(UserError, match=r"raise train\.batch"):
        tiny_train(tmp_path / "run", "memory.images=5", "train.batch=1", "model.norm=group")
    assert not (tmp_path / "run").exists()


def test_a_method_that_needs_a_memory_says_so(tiny_train, tmp_path):
    with pytest.raises(UserError, match=r"memory\.images is 0"):
        tiny_train(tmp_path / "run", "method=ssul-m")
    assert not (tmp_path / "run").exists()
