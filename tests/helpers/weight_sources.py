"""Networks of other libraries that weights come from, and what it takes to compare with them."""

import pytest
import torch
import torchvision
import transformers
from network_tester import enliven, images, make
from safetensors.torch import save_file

MOBILENET = {"name": "deeplabv3", "backbone": "mobilenet_v2"}
RESNET = {"name": "deeplabv3", "backbone": "resnet50", "head": "mib"}
B0 = {"name": "segformer", "variant": "b0"}
DILATED = (1, 1, 1, 2)
"""Every how many pixels of a stage at output stride 16 those of a network without dilation lie."""


def loaded(config, source):
    """Return a network that has read weights, with two classes and in evaluation."""
    torch.manual_seed(11)
    network = make(config | {"weights": str(source)})
    network.classifier.grow(2)
    network.load_pretrained()
    return network.eval()


def write(state, path, half=False):
    state = {key: value.half() if half and value.is_floating_point() else value for key, value in state.items()}
    if path.suffix == ".safetensors":
        save_file({key: value.contiguous() for key, value in state.items()}, path)
    else:
        torch.save(state, path)
    return path


@torch.no_grad()
def same_maps(network, expected, batch, steps=(1, 1, 1, 1), tolerance=1e-4):
    stages = network(batch).stages
    assert len(stages) == len(expected) == len(steps)
    for found, other, step in zip(stages, expected, steps, strict=True):
        assert other.std() > 0.01
        found = found[:, :, ::step, ::step]
        torch.testing.assert_close(found, other, rtol=0, atol=tolerance * max(1.0, other.abs().max().item()))


def normalised(batch, network):
    return (batch - network.mean) / network.std


@torch.no_grad()
def trained(plain, side=64):
    """Make a library's network look trained: no constant parameter, no constant statistic."""
    return enliven(plain, side)


# ---- ResNet and MobileNetV2


@pytest.fixture(scope="module")
def resnet():
    torch.manual_seed(1)
    return trained(torchvision.models.resnet50())


@pytest.fixture(scope="module")
def mobilenet():
    torch.manual_seed(2)
    return trained(torchvision.models.mobilenet_v2())


@torch.no_grad()
def resnet_maps(plain, image):
    x, maps = plain.maxpool(plain.relu(plain.bn1(plain.conv1(image)))), []
    for layer in (plain.layer1, plain.layer2, plain.layer3, plain.layer4):
        x = layer(x)
        maps.append(x)
    return maps


@torch.no_grad()
def mobilenet_maps(plain, image):
    return [plain.features[: end + 1](image) for end in (3, 6, 13, 17)]


# ---- SegFormer


@pytest.fixture(scope="module")
def segformer():
    torch.manual_seed(7)
    config = transformers.SegformerConfig(num_labels=4)
    return trained(transformers.SegformerForSemanticSegmentation(config))


HUB_NAMES = (
    ("stages.{s}.patch_embeddings.", "encoder.patch_embeddings.{s}."),
    ("stages.{s}.layer_norm.", "encoder.layer_norm.{s}."),
    ("stages.{s}.blocks.", "encoder.block.{s}."),
)
HUB_BLOCK_NAMES = {
    "attention.q_proj": "attention.self.query",
    "attention.k_proj": "attention.self.key",
    "attention.v_proj": "attention.self.value",
    "attention.sequence_reduction.sequence_reduction": "attention.self.sr",
    "attention.sequence_reduction.layer_norm": "attention.self.layer_norm",
    "attention.o_proj": "attention.output.dense",
    "layernorm_before": "layer_norm_1",
    "layernorm_after": "layer_norm_2",
    "mlp.fc1": "mlp.dense1",
    "mlp.fc2": "mlp.dense2",
    "decode_head.linear_projections": "decode_head.linear_c",
}
MIT_BLOCK_NAMES = {
    "attention.q_proj": "attn.q",
    "attention.k_proj": "attn.k",
    "attention.v_proj": "attn.v",
    "attention.sequence_reduction.sequence_reduction": "attn.sr",
    "attention.sequence_reduction.layer_norm": "attn.norm",
    "attention.o_proj": "attn.proj",
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
}


def replaced(state, pairs):
    renamed = {}
    for key, value in state.items():
        for new, old in pairs:
            key = key.replace(new, old)
        renamed[key] = value
    assert len(renamed) == len(state)
    return renamed


def hub_names(state):
    """Return a state under the names of transformers 4, as files on the hub have them."""
    stages = [(new.format(s=s), old.format(s=s)) for s in range(4) for new, old in HUB_NAMES]
    return replaced(state, [*stages, *HUB_BLOCK_NAMES.items()])


def mit_names(state):
    """Return an encoder's state under the names of the first release, keys above values in one weight."""
    stages = []
    for s in range(4):
        stages += [(f"stages.{s}.patch_embeddings.layer_norm.", f"patch_embed{s + 1}.norm.")]
        stages += [(f"stages.{s}.patch_embeddings.", f"patch_embed{s + 1}.")]
        stages += [(f"stages.{s}.layer_norm.", f"norm{s + 1}."), (f"stages.{s}.blocks.", f"block{s + 1}.")]
    state = replaced(state, [*stages, *MIT_BLOCK_NAMES.items()])
    for key in [key for key in state if ".attn.k." in key]:
        keys, values = state.pop(key), state.pop(key.replace(".attn.k.", ".attn.v."))
        state[key.replace(".attn.k.", ".attn.kv.")] = torch.cat([keys, values])
    return state | {"head.weight": torch.zeros(1000, 256), "head.bias": torch.zeros(1000)}


@torch.no_grad()
def same_segformer(network, plain, decoder=True):
    batch = images(2, 65, 97)
    out = plain(normalised(batch, network), output_hidden_states=True)
    same_maps(network, out.hidden_states, batch)
    if decoder:
        logits = plain.decode_head.classifier(network(batch).embedding)
        torch.testing.assert_close(logits, out.logits, rtol=1e-4, atol=1e-4)


# ---- DINOv2

DINO = {"hidden_size": 384, "num_attention_heads": 6, "image_size": 518, "patch_size": 14}


def dino(registers):
    """transformers' DINOv2, and the network of the same architecture with its weights."""
    torch.manual_seed(10)
    if registers:
        made = transformers.Dinov2WithRegistersModel(transformers.Dinov2WithRegistersConfig(**DINO))
    else:
        made = transformers.Dinov2Model(transformers.Dinov2Config(**DINO))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.min() == parameter.max():
                parameter.normal_(std=0.1) if "bias" in name or "token" in name else parameter.uniform_(0.6, 1.4)
    return made.eval()


DINO_CONFIG = {
    False: {"name": "vit", "backbone": "vit_small_patch14_dinov2", "width": 16, "layers": 1},
    True: {"name": "vit", "backbone": "vit_small_patch14_reg4_dinov2", "width": 16, "layers": 1},
}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "registers"])
def dinos(request, tmp_path_factory):
    """A DINOv2 of transformers, and our network after reading it, at the image size where both agree on positions."""
    plain = dino(request.param)
    path = write(plain.state_dict(), tmp_path_factory.mktemp("dino") / "dino.safetensors")
    return request.param, plain, loaded(DINO_CONFIG[request.param], path)


def one_sentence(message, source):
    assert "\n" not in message
    assert message.endswith(".")
    assert not message.endswith("..")
    assert str(source) in message
