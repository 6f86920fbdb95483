"""Under the sequential setting nothing is hidden: background is background, whatever the treatment."""

import torch
from grids import grid

from faircl.data.sample import Classes
from faircl.engine.plan import make_plan
from faircl.engine.trainer import train
from faircl.scenario import Scenario, Step


def scenario(setting, background=True):
    names = ("background", "a", "b") if background else ("a", "b")
    first = int(background)
    steps = (Step((first,), ("x",)), Step((first + 1,), ("x",)))
    return Scenario(Classes(names, background), "1-1", setting, steps, (0,) * (first + 1) + (1,), (), "")


def test_background_hides_nothing_under_sequential():
    assert [scenario(s).unlabelled for s in ("overlapped", "disjoint", "sequential")] == [0, 0, 65534]
    table = scenario("sequential").train_table(1)
    assert table[:3].tolist() == [0, 1, 2]


@grid("treatment", ["assigned", "teacher", "online", "unbiased", "soft", "paper", "ignore", "background"], quick=2)
def test_true_labels_are_trained_on(treatment, tiny_config, silent, tmp_path, monkeypatch):
    from faircl.methods.faircl import FairCL

    config = tiny_config(
        "scenario.setting=sequential",
        f"method.unlabelled={treatment}",
        "scenario.task=[[1, 2, 3, 4, 5, 6, 7, 8, 9], [10]]",
        "train.batch=3",
    )
    seen = []
    original = FairCL.targets

    def watched(self, batch, out, old):
        found = original(self, batch, out, old)
        seen.append(torch.equal(found, batch.labels))
        return found

    monkeypatch.setattr(FairCL, "targets", watched)
    plan = make_plan(config, config.data.open(), silent())
    assert all(step.images for step in plan.scenario.steps)
    train(config, tmp_path / "run", silent())
    assert seen
    assert all(seen)
