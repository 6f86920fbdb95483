"""What logging services kept of a run, read back as ``{(key, update): [values]}``, and what they should have kept."""

from __future__ import annotations

import json
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

Kept = dict[tuple[str, int], list[float]]
BLOCK, HEADER = 32768, 7


def expected(folder: Path) -> Kept:
    """The numbers of metrics.jsonl, by hand: this is the contract of docs/logging.md."""
    found: Kept = defaultdict(list)
    lengths: dict[int, int] = {}
    for record in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        step = record["step"]
        before = sum(length for earlier, length in lengths.items() if earlier < step)
        if record["kind"] == "train":
            lengths[step] = record["iterations"]
            numbers = {f"step{step}/loss": record["loss"], f"step{step}/lr": record["lr"]}
            numbers |= {f"step{step}/terms/{name}": value for name, value in record["terms"].items()}
            numbers |= {f"step{step}/measures/{name}": value for name, value in record.get("measures", {}).items()}
            at = before + record["iteration"]
        else:
            prefix, at = ("eval", before + lengths.get(step, 0))
            if record["kind"] == "validation":
                prefix, at = f"step{step}/validation", before + record["iteration"]
            numbers = {f"{prefix}/miou/{group}": value for group, value in record["miou"].items()}
            for name in ("std", "gap", "error_gap", "rarest_third", "mean_forgetting", "average_over_steps"):
                numbers[f"{prefix}/{name}"] = record.get(name)
            numbers[f"{prefix}/worst"] = record["worst"]["iou"]
            numbers |= {f"{prefix}/iou/{row['id']}_{row['name']}": row["iou"] for row in record["classes"]}
        for name, value in numbers.items():
            if value is not None:
                found[name, at].append(value)
    return dict(found)


def tensorboard_points(folder: Path) -> Kept:
    """Read all event files of a run as TensorBoard does."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Kept = defaultdict(list)
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            found[tag, event.step].append(event.value)
    return dict(found)


def mlflow_run(folder: Path, id: str) -> SimpleNamespace:
    """Read a run of the database in a run folder."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.resolve() / 'mlflow.db'}")
    run = client.get_run(id)
    found: Kept = defaultdict(list)
    for key in run.data.metrics:
        for metric in client.get_metric_history(id, key):
            found[key, metric.step].append(metric.value)
    artifacts = {file.path for file in client.list_artifacts(id)}
    runs = client.search_runs([run.info.experiment_id])
    return SimpleNamespace(
        points=dict(found), state=run.info.status, settings=run.data.params, artifacts=artifacts, runs=len(runs)
    )


def wandb_run(folder: Path, seconds: float = 30) -> SimpleNamespace:
    """Read all offline folders of a run, in order, once wandb's process has written their ends."""
    end = time.monotonic() + seconds
    while len((kept := _wandb_run(folder)).codes) < len(list(folder.glob("wandb/offline-run-*"))):
        assert time.monotonic() < end, "a run of wandb has no end"
        time.sleep(0.1)
    return kept


def _wandb_run(folder: Path) -> SimpleNamespace:
    found: Kept = defaultdict(list)
    ids, settings, codes, artifacts, rows = set(), {}, [], [], []
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for record in _wandb_records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                ids.add(record.run.run_id)
                settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "exit":
                codes.append(record.exit.exit_code)
            elif kind == "artifact":
                artifacts.append((record.artifact.name, record.artifact.type))
            elif kind == "history":
                row = {
                    "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
                }
                at, number = row.pop("update"), row.pop("_step")
                rows.append((number, at, row.pop("step")))
                for name, value in row.items():
                    if not name.startswith("_"):
                        found[name, at].append(value)
    return SimpleNamespace(points=dict(found), ids=ids, settings=settings, codes=codes, artifacts=artifacts, rows=rows)


def _wandb_records(path: Path) -> Iterator[object]:
    """Parse a .wandb file: seven bytes of its own, then LevelDB's log of blocks with full and split records."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), HEADER, b""
    while at + HEADER <= len(data):
        if BLOCK - at % BLOCK < HEADER:  # the rest of a block is too small for a header
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        if at + HEADER + length > len(data):  # is being written
            return
        whole += data[at + HEADER : at + HEADER + length]
        at += HEADER + length
        if kind in (1, 4):  # full, last
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
        if kind in (0, 1, 4):
            whole = b""
