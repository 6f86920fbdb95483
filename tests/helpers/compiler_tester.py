"""What compilers must make of every network; testers as in `network_tester`."""

import copy

import torch
from network_tester import Tester, gradients, images, loss_of

from faircl.models.checkpointing import checkpoint_blocks


class CompilerTester(Tester):
    """What compilers make of a network: seconds for each, so that these tests stand apart."""

    @torch.no_grad()
    def test_compiled(self, network, reference):
        torch._dynamo.reset()
        graphs = []
        compiled = torch.compile(network, backend=lambda graph, _: [graphs.append(graph), graph][1], fullgraph=True)
        logits = compiled(images()).logits
        torch._dynamo.reset()
        assert len(graphs) == 1
        torch.testing.assert_close(logits, reference, rtol=1e-4, atol=1e-4)

    @torch.no_grad()
    def test_exported(self, network, reference):
        out = torch.export.export(network, (images(seed=1),)).module()(images())
        torch.testing.assert_close(out.logits, reference, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(out.stages, network(images()).stages, rtol=1e-4, atol=1e-4)


class CompiledTrainingTester(Tester):
    """What compilers make of gradient checkpointing."""

    def test_compiled_training_under_checkpointing(self, network):
        plain, forgetful = copy.deepcopy(network).train(), copy.deepcopy(network).train()
        checkpoint_blocks(forgetful.blocks())
        torch._dynamo.reset()
        expected = loss_of(plain, images())
        expected.backward()
        loss = loss_of(torch.compile(forgetful, backend="aot_eager"), images())
        loss.backward()
        torch._dynamo.reset()
        torch.testing.assert_close(loss, expected)
        one, other = (torch.cat([g.flatten() for g in gradients(n).values()]) for n in (plain, forgetful))
        assert (one - other).norm() < 1e-3 * one.norm()
        for name, value in plain.state_dict().items():
            torch.testing.assert_close(forgetful.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)
