"""FairCL whole, by kernels in Triton's interpreter and by plain torch: the same terms, gradients and prototypes."""

import pytest
import torch
from grids import grid
from tiny_steps import Run

from faircl import kernels

pytest.importorskip("triton", reason="Triton comes with torch for Linux alone")


def gradients(by_kernels, monkeypatch, **method):
    """Terms and gradients of an update of the second step, whose prototypes are ready, in plain torch or by kernels."""
    run = Run(period=2, **method).to_step_one()
    run.iterate(3)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "usable", lambda tensor: by_kernels)
        _, _, _, terms = run.forward()
        torch.stack(list(terms.values())).sum().backward()
    return terms, [parameter.grad for parameter in run.model.parameters()]


@grid(
    "method",
    [
        {},
        {"name": "faircl", "lambda_cons": 1},
        {"fairness": "kl"},
        {"unlabelled": "unbiased"},
        {"lambda_cluster": 0},
        {"unlabelled": "paper", "unknown_cluster": True, "margin": 5.0},
    ],
    quick=2,
    ids=str,
)
def test_kernels_and_plain_torch_agree(method, monkeypatch):
    plain, expected = gradients(False, monkeypatch, **method)
    terms, found = gradients(True, monkeypatch, **method)
    assert terms.keys() == plain.keys() >= {"seg", "cons"}
    for name, value in terms.items():
        assert value.item() == pytest.approx(plain[name].item(), rel=1e-4, abs=1e-6)
        assert value.item() != 0
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
