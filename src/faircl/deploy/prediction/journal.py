"""The images that an unfinished prediction has finished, one line of JSON each, so that it can be continued."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from faircl.deploy.input_files import InputImage
from faircl.errors import UserError
from faircl.files import write_text

DOCUMENT, JOURNAL = "predictions.json", "predictions.part.jsonl"


class Journal:
    """The output folder of a prediction, free or with one that was interrupted; nothing is written before `begin`."""

    def __init__(self, out: Path, resume: bool) -> None:
        self.out, self.path = out, out / JOURNAL
        self.settings: dict[str, Any] = {}
        """The first line: what must be the same for the results of two calls to lie side by side."""
        self.done: dict[str, dict[str, Any]] = {}
        """Entries of finished images, by name."""
        if out.exists() and not out.is_dir():
            raise UserError(f"Output {out} is a file; choose a folder with --out.")
        try:
            held = {entry.name for entry in out.iterdir()} if out.exists() else set()
        except OSError as error:
            raise UserError(
                f"Cannot look into the output folder {out}: {error.strerror}; choose another with --out."
            ) from None
        if DOCUMENT in held:
            raise UserError(f"Output folder {out} already holds finished predictions; choose another with --out.")
        if JOURNAL in held:
            self._read(resume)
        elif any(not name.startswith(".") for name in held):
            raise UserError(f"Output folder {out} holds other files; choose an empty or new folder with --out.")

    def begin(self, settings: dict[str, Any]) -> None:
        """Set the settings, or raise a UserError if the interrupted prediction was begun with others."""
        before = {**settings, **self.settings}
        other = [key for key in before if before[key] != settings.get(key)]
        if other:
            raise UserError(
                f"The unfinished prediction in {self.out} was begun with {other[0]} {before[other[0]]}, not "
                f"{settings.get(other[0])}; give the same options, or choose another folder with --out."
            )
        self.settings = settings
        self._make_folder()
        write_text(self.path, "".join(json.dumps(line) + "\n" for line in (settings, *self.done.values())))

    def remaining(self, images: list[InputImage]) -> list[InputImage]:
        """Return the images that are not finished yet; those that are must still be among them."""
        given = {image.name: str(image.path) for image in images}
        other = [name for name, entry in self.done.items() if given.get(name) != entry["image"]]
        if other:
            raise UserError(
                f"The unfinished prediction in {self.out} holds {self.done[other[0]]['image']}, which is not among the "
                "images given now under the same name; give the same images, or choose another folder with --out."
            )
        return [image for image in images if image.name not in self.done]

    def add(self, entry: dict[str, Any]) -> None:
        """Note a finished image."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise UserError(
                f"Cannot write {self.path}: {error.strerror}; mend that and continue with --resume."
            ) from None
        self.done[entry["name"]] = entry

    def finish(self, document: dict[str, Any]) -> None:
        """Write the document and drop the journal."""
        self._make_folder()
        write_text(self.out / DOCUMENT, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        self.path.unlink(missing_ok=True)

    def remove_empty_folders(self) -> None:
        """Remove what a prediction has made that failed before its first image was finished."""
        if not self.done:
            self.path.unlink(missing_ok=True)
            for place, _, _ in os.walk(self.out, topdown=False):
                with suppress(OSError):
                    os.rmdir(place)

    def _make_folder(self) -> None:
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"Cannot make the output folder {self.out}: {error.strerror}; choose another with --out."
            ) from None

    def _read(self, resume: bool) -> None:
        if not resume:
            raise UserError(
                f"Output folder {self.out} holds an unfinished prediction; continue it with --resume, or choose "
                "another with --out."
            )
        lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]  # a line that breaks off was not finished
        try:
            self.settings, *entries = map(json.loads, lines) if lines else [{}]
            self.done = {entry["name"]: entry for entry in entries}
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{self.path} is damaged; choose another folder with --out.") from None
