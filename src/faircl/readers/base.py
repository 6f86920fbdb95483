"""The interface of readers and their configuration, and two readers: built-in scenes and a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, field_validator

from faircl.data.auxiliary_maps import AuxiliaryMaps
from faircl.data.digests import DigestKind
from faircl.data.images import ImageReading
from faircl.data.saliency import SaliencyMaps
from faircl.data.sample import SegmentationData
from faircl.effects import Effect
from faircl.errors import UserError
from faircl.readers.folder import FolderData
from faircl.readers.scenes import SceneData

_Byte = Annotated[int, Field(ge=0, le=255)]


class ReaderConfig(BaseModel):
    """Settings of all readers: name, the splits to train and test on, and validation images."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: str
    train: str = Field("train", description="split to train on")
    test: str = Field("test", description="split to evaluate on")
    validation: str | float | tuple[str, ...] | None = Field(
        None,
        description="validation images: a split, a share of the training images to leave out, a pattern of ids of "
        "training images to leave out (site-3/*), or a list of splits and patterns; unset: none",
    )
    validation_seed: NonNegativeInt = Field(0, description="seed of the share of validation images")
    digest: Annotated[DigestKind, Effect.NONE] = Field(
        "sample", description="how changed images are noticed: by a sample of the bytes of each, or by all (full)"
    )

    @field_validator("validation")
    @classmethod
    def _splits_or_share(cls, validation: str | float | tuple[str, ...] | None) -> str | float | tuple[str, ...] | None:
        if isinstance(validation, float):
            valid = 0 < validation < 1
        else:
            valid = validation is None or (len(validation) > 0 and "" not in tuple(validation))
        if not valid:
            raise ValueError(
                "expected a split, a share between 0 and 1, a pattern of training ids, or a list of splits and "
                f"patterns, found {validation!r}"
            )
        return validation

    @property
    def validation_splits(self) -> tuple[str, ...]:
        """Splits whose images are all validation images."""
        return tuple(entry for entry in self._validation_entries if not _is_pattern(entry))

    @property
    def validation_patterns(self) -> tuple[str, ...]:
        """Patterns of the ids of training images that are validation images instead."""
        return tuple(filter(_is_pattern, self._validation_entries))

    @property
    def _validation_entries(self) -> tuple[str, ...]:
        if self.validation is None or isinstance(self.validation, float):
            return ()
        return (self.validation,) if isinstance(self.validation, str) else tuple(dict.fromkeys(self.validation))

    def open(self) -> SegmentationData:
        """Open the data; raise UserError if it is missing."""
        raise NotImplementedError

    def absolute(self) -> Self:
        """Return the same configuration with absolute paths, independent of the current folder."""
        return self

    def auxiliary_maps(self, name: str | None) -> AuxiliaryMaps | None:
        """Return the auxiliary maps of a name for the training images, where there are any."""
        return None


def _is_pattern(entry: str) -> bool:
    return any(sign in entry for sign in "*?[")


class FileConfig(ReaderConfig):
    """Settings of all readers of files: the folder, and how images are read."""

    root: Annotated[Path | None, Effect.NONE] = Field(None, description="the folder")
    bands: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt] | None = Field(
        None, description="bands, from 0, that become red, green and blue; unset: the first three"
    )
    value_range: tuple[float, float] | None = Field(
        None, description="values that become 0 and 255, for deep images; unset: the whole range of the type"
    )
    saliency: Annotated[Path | None, Effect.PRESENCE] = Field(
        None, description="folder of saliency maps, a PNG per training image; only methods that want them use them"
    )

    @field_validator("value_range")
    @classmethod
    def _ordered(cls, value_range: tuple[float, float] | None) -> tuple[float, float] | None:
        if value_range is not None and value_range[0] >= value_range[1]:
            raise ValueError(f"expected [low, high] with low < high, found {list(value_range)}")
        return value_range

    def required_root(self) -> Path:
        """Return the root; raise an error if it is not set."""
        if self.root is None:
            raise UserError(f"The data set '{self.name}' has no root; set data.root (--root) to its folder.")
        return self.root

    def absolute(self) -> Self:
        """Return the same configuration with absolute folders."""
        folders = {"root": self.root, "saliency": self.saliency}
        return self.model_copy(update={name: _absolute(path) for name, path in folders.items() if path is not None})

    def auxiliary_maps(self, name: str | None) -> AuxiliaryMaps | None:
        """Return the auxiliary maps of a name for the training images, where their folder was given."""
        if name != "saliency" or self.saliency is None:
            return None
        return SaliencyMaps(_absolute(self.saliency))

    def image_reading(self) -> ImageReading:
        """Return how images are read."""
        return ImageReading(self.bands, self.value_range)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path.expanduser()))


class SceneConfig(ReaderConfig):
    """The built-in procedural street scenes."""

    name: Literal["scenes"] = "scenes"
    images: int = Field(200, description="training images")
    test_images: int = Field(60, description="test images")
    size: int = Field(96, description="side of an image in pixels")
    seed: int = Field(0, description="seed of the scenes, apart from the seed of training")

    def open(self) -> SceneData:
        """Return the generator of scenes."""
        return SceneData(self.images, self.test_images, self.size, self.seed)


class FolderConfig(FileConfig):
    """A folder with images/{split}, masks/{split} and classes.txt."""

    name: Literal["folder"] = "folder"
    background: Literal["auto", "first", "none"] = Field(
        "auto", description="whether id 0 is background: auto looks whether it is called so"
    )
    ignore_colour: tuple[_Byte, _Byte, _Byte] | None = Field(
        None, description="colour of ignored pixels in RGB-coded masks"
    )

    def open(self) -> FolderData:
        """Open the folder."""
        if self.root is None:
            raise UserError(
                "The folder data set has no root; set data.root (--root) to the folder with images/ and masks/."
            )
        return FolderData(self.root, self.background, self.ignore_colour, self.image_reading())


class Reader:
    """A registered reader: its configuration, a summary, the files expected in the root, published tasks."""

    Config: ClassVar[type[ReaderConfig]]
    summary: ClassVar[str]
    layout: ClassVar[str] = ""
    tasks: ClassVar[tuple[str, ...]] = ()


class SceneReader(Reader):
    """Built-in scenes."""

    Config = SceneConfig
    summary = "built-in street scenes, drawn when read; ten classes and background"
    tasks = ("6-4",)


class FolderReader(Reader):
    """A folder of images and masks."""

    Config = FolderConfig
    summary = "a folder of your own: images, masks and a list of classes"
    layout = """\
classes.txt
images/{split}/…/a.jpg
masks/{split}/…/a.png"""
