"""What a run wrote, for comparisons byte by byte."""

import json

STATES = [f"steps/{step}/{part}.safetensors" for step in ("00", "01") for part in ("model", "method")]


def states(folder) -> dict[str, bytes]:
    return {name: (folder.path / name).read_bytes() for name in STATES}


def records(folder) -> list[dict]:
    """All records without the clock."""
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]
