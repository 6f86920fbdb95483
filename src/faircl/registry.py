"""Tables of named parts (methods, networks, readers), to which other packages and scripts can add."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from faircl.errors import UserError, listed, unknown_name


class Registry:
    """Names to classes, loaded when asked for.

    Built-in entries are ``"module:Class"``; other packages add theirs under the entry-point group, scripts by
    ``register``.
    """

    def __init__(self, kind: str, group: str, builtin: dict[str, str]) -> None:
        self.kind, self.group, self.builtin = kind, group, builtin
        self.registered: dict[str, type] = {}

    def names(self) -> list[str]:
        """All known names: the built-in ones in their order, then all others sorted."""
        others = {point.name for point in entry_points(group=self.group)} | set(self.registered)
        return [*self.builtin, *sorted(others - set(self.builtin))]

    def register(self, name: str, part: type) -> None:
        """Add a class for the life of this process.

        A name that was registered before is replaced, so that a notebook's cell can run twice; a built-in name or one
        of an installed package is refused.
        """
        if not name:
            raise UserError(f"A {self.kind} needs a name to be registered under; found an empty one.")
        if name in self.builtin:
            raise UserError(f"The {self.kind} '{name}' is built in and cannot be replaced; choose another name.")
        if any(point.name == name for point in entry_points(group=self.group)):
            raise UserError(
                f"The {self.kind} '{name}' comes with an installed package and cannot be replaced; choose another name."
            )
        self.registered[name] = part

    def get(self, name: str) -> Any:
        """Load the class of a name."""
        if name in self.registered:
            return self.registered[name]
        if name in self.builtin:
            module, attribute = self.builtin[name].split(":")
            return getattr(import_module(module), attribute)
        for point in entry_points(group=self.group):
            if point.name == name:
                try:
                    return point.load()
                except Exception as error:  # another package's code
                    raise UserError(
                        f"The {self.kind} '{name}' ({point.value}) cannot be loaded: {type(error).__name__}: {error}; "
                        "fix or uninstall the package that brings it."
                    ) from None
        raise unknown_name(self.kind, name, self.names())

    def name_in(self, value: Any) -> str | None:
        """Return the name in ``{"name": …, …}`` or a bare name, which must be known; None for any other value.

        No class is loaded for it, so that a mistyped name is found without importing torch.
        """
        if isinstance(value, dict):
            if "name" not in value:
                raise UserError(f"The {self.kind} has no name; expected one of: {listed(self.names())}.")
            value = str(value["name"])
        if not isinstance(value, str):
            return None
        if value not in self.names():
            raise unknown_name(self.kind, value, self.names())
        return value

    def parse_config(self, value: Any) -> Any:
        """Turn ``{"name": …, …}`` or a bare name into the configuration object of the class it names."""
        name = self.name_in(value)
        if name is None:
            return value
        return self.get(name).Config.model_validate(value if isinstance(value, dict) else {"name": name})


METHODS = Registry(
    "method",
    "faircl.methods",
    {
        "finetune": "faircl.methods.finetune:FineTune",
        "joint": "faircl.methods.joint:Joint",
        "lwf": "faircl.methods.lwf:LwF",
        "lwf-mc": "faircl.methods.lwf_mc:LwFMC",
        "ilt": "faircl.methods.ilt:ILT",
        "mib": "faircl.methods.mib:MiB",
        "plop": "faircl.methods.plop:PLOP",
        "rcil": "faircl.methods.rcil:RCIL",
        "reminder": "faircl.methods.reminder:REMINDER",
        "sats": "faircl.methods.sats:SATS",
        "ewf": "faircl.methods.ewf:EWF",
        "awt": "faircl.methods.awt:AWT",
        "dft": "faircl.methods.dft:DFT",
        "ssul": "faircl.methods.ssul:SSUL",
        "ssul-m": "faircl.methods.ssul:SSULM",
        "sdr": "faircl.methods.sdr:SDR",
        "faircl": "faircl.methods.faircl:FairCL",
        "faircl-paper": "faircl.methods.faircl:FairCLPaper",
    },
)
MODELS = Registry(
    "model",
    "faircl.models",
    {
        "small": "faircl.models.small:Small",
        "deeplabv3": "faircl.models.deeplabv3:DeepLabV3",
        "deeplabv3plus": "faircl.models.deeplabv3:DeepLabV3Plus",
        "segformer": "faircl.models.segformer:SegFormer",
        "timm": "faircl.models.timm_backbone:Timm",
        "vit": "faircl.models.vit:ViT",
    },
)
READERS = Registry(
    "data set",
    "faircl.data",
    {
        "scenes": "faircl.readers.base:SceneReader",
        "folder": "faircl.readers.base:FolderReader",
        "voc": "faircl.readers.voc:VocReader",
        "ade": "faircl.readers.ade:AdeReader",
        "cityscapes": "faircl.readers.cityscapes:CityscapesReader",
        "camvid": "faircl.readers.camvid:CamVidReader",
        "cvat": "faircl.readers.cvat:CvatReader",
        "label-studio": "faircl.readers.label_studio:LabelStudioReader",
        "coco-panoptic": "faircl.readers.coco:CocoPanopticReader",
        "coco-stuff": "faircl.readers.coco:CocoStuffReader",
        "huggingface": "faircl.readers.huggingface:HuggingFaceReader",
    },
)


def is_joint(method: str) -> bool:
    """Whether a method trains all classes in one step; of the built-in ones it is known without importing torch."""
    return method == "joint" if method in METHODS.builtin else bool(METHODS.get(method).joint)
