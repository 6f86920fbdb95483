"""Adopted networks: the masks of their own library, names, background, statistics, and a further step."""

import json
import shutil

import numpy as np
import pytest
import torch
from foreign_networks import LABELS, make_deeplab, make_segformer, masks_of, read_json
from PIL import Image as Pillow
from safetensors.torch import load_file, save_file
from tiny_runs import Silent

import faircl
from faircl.checksums import damaged_file
from faircl.deploy.adoption.class_names import GivenNames, parse_names
from faircl.engine.make_method import make_method
from faircl.engine.network import build_model
from faircl.errors import UserError
from faircl.runs.checkpoint import load_step
from faircl.runs.folder import RunFolder

SIZES = ((64, 96), (75, 101), (33, 130))


def pictures(seed=0):
    rng = np.random.default_rng(seed)
    for height, width in SIZES:
        coarse = rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)
        yield np.array(Pillow.fromarray(coarse).resize((width, height), Pillow.Resampling.BICUBIC))


def photos(folder, count=5):
    folder.mkdir()
    for number in range(count):
        Pillow.fromarray(next(pictures(number))).save(folder / f"{number}.png")
    return folder


def same_masks(run, network, names):
    """The run predicts what the library's network does; ``names`` are its classes in its own order."""
    predictor = faircl.load(run, device="cpu")
    seen = set()
    for image in pictures():
        expected = np.array(names)[masks_of(network, image).numpy()]
        prediction = predictor.predict(image)
        found = np.vectorize(prediction.names.get)(prediction.mask)
        assert (found == expected).mean() >= 0.9999
        seen |= set(expected.flatten().tolist())
    assert len(seen) > 1, "a network that sees one class everywhere shows nothing"


def loaded(run):
    """The network and the method of an adopted run."""
    folder = RunFolder.open(run.folder)
    model = build_model(folder.config(), pretrained=False)
    method = make_method(folder.config(), model)
    load_step(folder.step_path(0), model, method)
    return folder, model, method


@pytest.mark.usefixtures("page")
def test_segformer_with_unlabelled_images(segformer, tmp_path):
    path, network = segformer
    reporter = Silent()
    run = faircl.adopt(path, tmp_path / "run", images=photos(tmp_path / "photos"), reporter=reporter)
    assert reporter.said[0].startswith("found transformers' SegFormer b0 with 5 classes (transformers ")
    assert any("same output as transformers" in line for line in reporter.said)
    same_masks(run, network, LABELS)
    folder, _, method = loaded(run)
    assert folder.finished_steps() == 1
    scenario = folder.load_scenario()
    assert scenario.background
    assert scenario.names == LABELS
    about = read_json(run.folder / "adopted.json")
    assert about["source"] == "segformer"
    assert len(about["weights_sha256"]) == 64
    assert about["agreement"]["difference"] < 1e-4
    assert about["images"] == {"labelled": False, "count": 5}
    features = [c["features"] for c in about["classes"]]
    assert features == method.memory.filled.tolist()
    assert max(features) == method.config.replay
    assert method.bank.ready.tolist() == [count > 0 for count in features]
    assert method.distribution.share.sum().item() == pytest.approx(1, abs=1e-5)
    assert damaged_file(folder.step_path(0)) is None
    assert (folder.step_path(0) / "SHA256SUMS").is_file()
    assert np.isnan(run.final.groups["all"].miou), "no score is invented"
    page = (run.folder / "report.html").read_text(encoding="utf-8")
    assert "adopted from transformers&#39; SegFormer b0" in page
    assert "It was not evaluated: no labelled images were given." in page
    assert sorted(p.name for p in tmp_path.iterdir()) == ["photos", "run"], "nothing is left beside the run"


def test_torchvision_with_the_background_elsewhere(deeplab, tmp_path):
    path, network = deeplab
    reporter = Silent()
    names = ("cat", "dog", "void", "sky")
    run = faircl.adopt(path, tmp_path / "run", classes=names, background="void", reporter=reporter)
    assert reporter.said[0].startswith("found torchvision's deeplabv3_mobilenet_v3_large with 4 classes")
    assert any("auxiliary classifier" in line for line in reporter.said)
    assert any("no images were given" in line for line in reporter.said)
    same_masks(run, network, names)
    folder, model, method = loaded(run)
    assert folder.load_scenario().names == ("void", "cat", "dog", "sky")
    assert folder.load_scenario().background
    assert [c["source_channel"] for c in read_json(run.folder / "adopted.json")["classes"]] == [2, 0, 1, 3]
    weight, bias = model.classifier.weight_and_bias()
    order = [2, 0, 1, 3]
    assert torch.equal(weight, network.classifier[4].weight.flatten(1)[order])
    assert torch.equal(bias, network.classifier[4].bias[order])
    assert not method.bank.ready.any()
    assert method.distribution.share.tolist() == pytest.approx([0.25] * 4)
    with pytest.raises(UserError, match=r"has no root; set data\.root"):
        faircl.evaluate(run, reporter=reporter)


@pytest.mark.slow
def test_labelled_images_evaluate_honestly(street, tmp_path):
    names = faircl.open_data("folder", street).classes.names
    network = make_deeplab("mobilenet_v3_large", len(names))
    path = tmp_path / "weights.safetensors"
    save_file({key: value.contiguous() for key, value in network.state_dict().items()}, path)
    order = [*names[3:], *names[:3]]  # the network's own order, not the data's
    order[order.index(names[5])] = "balloon"  # a class that the data does not have, and one that the network lacks
    reporter = Silent()
    run = faircl.adopt(
        path,
        tmp_path / "run",
        classes=",".join(order),
        background=names[0],
        data="folder",
        root=street,
        settings={"train.workers": 0},
        reporter=reporter,
    )
    assert any(f"ignored: {names[5]}" in line for line in reporter.said)
    assert any("balloon" in line and "no prototype replay" in line for line in reporter.said)
    data = faircl.open_data("folder", street)
    union, both, truth = (dict.fromkeys(order, 0) for _ in range(3))
    for id in data.ids("test"):
        sample = data.read("test", id)
        predicted = np.array(order)[masks_of(network, sample.image).numpy()]
        labels = np.array(names)[sample.mask]
        valid = (labels != names[5]) & (labels != names[0])  # what is not labelled may be a balloon
        for name in order:
            p, t = (predicted == name) & valid, (labels == name) & valid
            both[name] += int((p & t).sum())
            union[name] += int((p | t).sum())
            truth[name] += int(t.sum())
    assert run.final.classes[0].name == names[0]
    for found in run.final.classes:
        assert found.pixels == truth[found.name]
        if found.pixels:
            assert found.iou == pytest.approx(100 * both[found.name] / union[found.name], abs=0.1)
    folder, _, method = loaded(run)
    counts = dict.fromkeys(order, 0)
    for id in data.ids("train"):
        for value, number in zip(*np.unique(data.read_mask("train", id), return_counts=True), strict=True):
            if names[value] in counts and value > 0:
                counts[names[value]] += int(number)
    total = sum(counts.values())
    shares = dict(zip(folder.load_scenario().names, method.distribution.share.tolist(), strict=True))
    for name, share in shares.items():
        assert share == pytest.approx(0.999 * counts[name] / total + 0.001 / len(names), rel=1e-4)
    assert folder.config().data.root == street
    with pytest.raises(UserError, match="classes are not those"):
        faircl.evaluate(run, reporter=reporter)


@pytest.mark.slow
def test_a_run_of_ours_goes_on_from_its_adopted_first_step(tiny_run, tiny_train, street, tmp_path):
    """The engine trains step 1 on the state that adoption made, with replay from the first update."""
    step = tiny_run.step_path(0)
    heads = read_json(step / "model.json")["classes"]
    shutil.copyfile(step / "model.safetensors", tmp_path / "weights.safetensors")
    run = faircl.adopt(
        tmp_path / "weights.safetensors",
        tmp_path / "adopted",
        classes=[c["name"] for c in heads],
        data="folder",
        root=street,
        model="small",
        settings={"model.width": 8, "model.embedding": 8, "train.workers": 0},
        reporter=Silent(),
    )
    state, trained = (load_file(p / "model.safetensors") for p in (run.folder / "steps/00", step))
    assert state.keys() == trained.keys()
    assert all(torch.equal(state[key], trained[key]) for key in state)
    out = tmp_path / "run"
    shutil.copytree(tiny_run.path, out)
    shutil.rmtree(out / "steps")
    shutil.copytree(run.folder / "steps", out / "steps")
    records = [record for record in tiny_run.records() if record["step"] == 0]
    (out / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    # The recipe of the tiny run keeps L_cluster, whose settings do not change the form of the state.
    resumed = tiny_train(out, resume=True)
    assert resumed.finished_steps() == 2
    terms = [record["terms"] for record in resumed.records("train") if record["step"] == 1]
    assert all(np.isfinite(value) for one in terms for value in one.values())
    assert terms[0]["replay"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "resnet101"])
def test_torchvision_resnets_without_background(name, tmp_path):
    network = make_deeplab(name, 5)
    path = tmp_path / "weights.pt"
    torch.save({"model": network.state_dict(), "epoch": 3}, path)
    labels = tuple("abcde")
    run = faircl.adopt(path, tmp_path / "run", classes=labels, images=photos(tmp_path / "photos"), reporter=Silent())
    same_masks(run, network, labels)
    assert not RunFolder.open(run.folder).load_scenario().background


@pytest.mark.slow
@pytest.mark.parametrize("background", ["sky", "none"])
def test_segformer_with_another_background_or_none(background, segformer, tmp_path):
    path, network = segformer
    run = faircl.adopt(path, tmp_path / "run", background=background, reporter=Silent())
    same_masks(run, network, LABELS)
    scenario = RunFolder.open(run.folder).load_scenario()
    assert scenario.background == (background != "none")
    assert scenario.names == (LABELS if background == "none" else ("sky", *LABELS[:4]))
    assert RunFolder.open(run.folder).config().data.background == ("none" if background == "none" else "first")


def test_a_file_of_names_alone(tmp_path):
    (tmp_path / "names.txt").write_text("sky\nroad\n", encoding="utf-8")
    assert parse_names(tmp_path / "names.txt") == GivenNames(("sky", "road"))


@pytest.mark.slow
def test_names_without_background_and_colours_of_a_file(tmp_path):
    network = make_segformer(tmp_path / "hub", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    (tmp_path / "names.txt").write_text("sky 10 20 30\nroad\ncar 1 2 3\n", encoding="utf-8")
    run = faircl.adopt(tmp_path / "hub", tmp_path / "run", classes=tmp_path / "names.txt", reporter=Silent())
    same_masks(run, network, ("sky", "road", "car"))
    predictor = faircl.load(run)
    assert predictor.names == {0: "sky", 1: "road", 2: "car"}
    assert predictor.colours[0] == (10, 20, 30)
    assert predictor.colours[2] == (1, 2, 3)


@pytest.mark.slow
def test_a_timm_network_of_ours(tmp_path):
    settings = {"name": "timm", "backbone": "resnet10t", "width": 16}
    model = build_model(faircl.load_config("folder", {"model": settings}))
    model.classifier.grow(2)
    model.classifier.grow(1)  # two steps of an earlier life
    torch.save(model.state_dict(), tmp_path / "ours.pth")
    run = faircl.adopt(
        tmp_path / "ours.pth",
        tmp_path / "run",
        classes="background,a,b",
        model="timm",
        settings={"model.backbone": "resnet10t", "model.width": 16},
        reporter=Silent(),
    )
    _, adopted, _ = loaded(run)
    image = torch.rand((1, 3, 64, 64))
    with torch.no_grad():
        torch.testing.assert_close(adopted.eval()(image).logits, model.eval()(image).logits)
    assert adopted.classifier.sizes == [3]
