"""FairCL whole, by kernels in Triton's interpreter and by plain torch: the same terms, gradients and prototypes."""

import pytest
import torch
from tiny_steps import Run

from faircl import kernels
from faircl.methods.faircl.method import FairCL
from faircl.models import inlet

pytest.importorskip("triton", reason="Triton comes with torch for Linux alone")


def gradients(by_kernels, monkeypatch, **method):
    """Terms and gradients of an update of the second step, whose prototypes are ready, and how many were added."""
    run = Run(period=2, **method).to_step_one()
    run.iterate(3)
    added = []
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "usable", lambda tensor: by_kernels)
        add_all = inlet.Inlet.add_all
        patch.setattr(
            inlet.Inlet, "add_all", lambda self, given: [added.append(len(self.additions)), add_all(self, given)][1]
        )
        _, _, _, terms = run.forward()
        torch.stack(list(terms.values())).sum().backward()
    return terms, [parameter.grad for parameter in run.model.parameters()], added


@pytest.mark.parametrize("method", [{}, {"fairness": "kl"}, {"unlabelled": "unbiased"}, {"lambda_cluster": 0}], ids=str)
def test_kernels_and_plain_torch_agree(method, monkeypatch):
    plain, expected, none = gradients(False, monkeypatch, **method)
    terms, found, added = gradients(True, monkeypatch, **method)
    assert not none
    assert sorted(added) == [method.get("lambda_cluster", 1), 1]  # into the embedding's gradient, and the logits'
    assert terms.keys() == plain.keys() >= {"seg", "cons"}
    for name, value in terms.items():
        assert value.item() == pytest.approx(plain[name].item(), rel=1e-4, abs=1e-6)
        assert value.item() != 0
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_a_cross_entropy_of_somebody_else_keeps_its_gradient_to_itself(monkeypatch):
    class Own(FairCL):
        def _seg(self, batch, out, targets):
            return super()._seg(batch, out, targets)

    run = Run(period=2).to_step_one()
    monkeypatch.setattr(kernels, "usable", lambda tensor: True)
    out = run.model(run.batch().image)
    assert run.method._scored(out)[1] is not None
    run.method.__class__ = Own
    scored, entry = run.method._scored(out)
    assert entry is None
    assert scored is out.logits
