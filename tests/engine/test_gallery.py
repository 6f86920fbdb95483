"""The gallery that a finished run leaves: which images, whose predictions, and what becomes of an interrupted one."""

import numpy as np
import pytest

from faircl.data.masks import decode_mask
from faircl.engine.evaluate import predict_masks
from faircl.engine.reevaluate import load_network
from faircl.fairness.chosen_images import image_scores
from faircl.runs.run import load_run

SHORT = ("train.epochs=1", "eval.gallery=3")


def test_every_step_predicts_the_chosen_images(tiny_train, tmp_path):
    folder = tiny_train(tmp_path / "run", *SHORT)
    run, scenario = load_run(folder.path), folder.load_scenario()
    gallery, data = run.gallery(), folder.config().data.open()
    worst = np.nanargmin(image_scores(run.records[1]))
    assert len(gallery) == 3
    assert gallery[0].id == run.records[1].images[worst]
    assert gallery[0].reasons[0].startswith("worst image: mean IoU ")
    for step in (0, 1):
        network = load_network(folder, folder.config(), step)
        expected = predict_masks(network, data, "test", [one.id for one in gallery], scenario)
        for one, mask in zip(gallery, expected, strict=True):
            assert sorted(one.predictions) == [0, 1]
            assert (decode_mask(one.predictions[step]) == mask).all()
            assert (decode_mask(one.truth) == data.read_mask("test", one.id)).all()


def test_joint_training_has_the_number_of_the_last_step(tiny_train, tmp_path):
    run = load_run(tiny_train(tmp_path / "run", *SHORT, "method=joint").path)
    assert list(run.records) == [run.final.step] == [1]
    assert [list(one.predictions) for one in run.gallery()] == [[1]] * 3


def test_none_is_wanted(tiny_train, tmp_path):
    run = load_run(tiny_train(tmp_path / "run", "train.epochs=1", "eval.gallery=0", "eval.examples=2").path)
    assert not (run.folder / "gallery").exists()
    assert [(one.id, sorted(one.predictions)) for one in run.gallery()] == [
        ("example 1", [0, 1]),
        ("example 2", [0, 1]),
    ]


def test_interrupted_gallery_is_written_by_resuming(tiny_train, silent, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tiny_train(tmp_path / "run", *SHORT, reporter=silent("gallery"))
    assert not (tmp_path / "run" / "gallery").exists()
    assert len(load_run(tmp_path / "run").steps) == 2  # nothing is trained again
    reporter = silent()
    tiny_train(tmp_path / "run", *SHORT, resume=True, reporter=reporter)
    assert len(load_run(tmp_path / "run").gallery()) == 3
