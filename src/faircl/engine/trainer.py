"""The step loop: prepare a step, train it, evaluate it, save it."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from PIL import Image as Pillow
from torch import Tensor, nn

from faircl.config import RunConfig
from faircl.data.loader import (
    AssignedLabels,
    Augmentation,
    Batch,
    StepDataset,
    WholeImages,
    same_size_batches,
    train_loader,
)
from faircl.data.masks import write_mask
from faircl.data.sample import Mask
from faircl.engine.checkpoint import load_step, save_step
from faircl.engine.environment import environment
from faircl.engine.evaluate import evaluate
from faircl.engine.loggers import TrainLog, import_summary_writer
from faircl.engine.network import build_model, check_network, set_training_mode
from faircl.engine.optim import make_optimizer, make_schedule
from faircl.engine.plan import Plan, make_plan
from faircl.engine.run_folder import RunFolder
from faircl.engine.runtime import make_fabric, memory_in_words, process_settings
from faircl.errors import UserError
from faircl.files import writing
from faircl.methods.base import Method, Scanned, StepContext
from faircl.metrics import StepMetrics, average_over_steps, forgetting
from faircl.models.segmenter import Segmenter, SegOutput
from faircl.progress import Reporter
from faircl.registry import METHODS
from faircl.report.page import write_run_page
from faircl.seeding import torch_seed


def train(config: RunConfig, out: Path, reporter: Reporter, resume: bool = False) -> RunFolder:
    """Run all steps of a configuration into a folder; with ``resume`` continue at the first unfinished step."""
    RunFolder(out).check_free(config, resume)
    with process_settings(config.train):
        fabric = make_fabric(config.train)
        model = build_model(config)
        check_network(config, model)
        if config.train.tensorboard:
            import_summary_writer()
        plan = make_plan(config, reporter)
        # Everything that can be wrong with data and settings is known by now: only now may the disk be touched.
        folder = RunFolder.claim(out, config, plan.scenario, environment(), resume)
        with memory_in_words():
            Trainer(plan, model, folder, fabric, reporter).run()
    return folder


class Trainer:
    """Trains the steps of a plan one after the other."""

    def __init__(self, plan: Plan, model: Segmenter, folder: RunFolder, fabric: Fabric, reporter: Reporter) -> None:
        self.plan, self.model, self.folder, self.fabric, self.reporter = plan, model, folder, fabric, reporter
        self.config, self.scenario = plan.config, plan.scenario
        self.method: Method = METHODS.get(self.config.method.name)(self.config.method, self.model)
        self.log = TrainLog(folder.path, self.config.train.log_every, self.config.train.tensorboard)

    def run(self) -> None:
        """Train what is not finished yet, step by step."""
        first = self.folder.finished_steps()
        if first > 0:
            load_step(self.folder.step_path(first - 1), self.model, self.method)
        self.model.to(self.fabric.device)
        self.method.to(self.fabric.device)
        records = self.folder.all_records(before_step=first)
        for step in range(first, len(self.scenario.steps)):
            names = ", ".join(self.plan.data.classes.names[i] for i in self.scenario.steps[step].classes)
            self.reporter.say(f"step {step}: {names} ({len(self.scenario.steps[step].images)} images)")
            seconds, images = self.train_step(step)
            evaluation = self.finish_step(step, records)
            evaluation |= {"seconds": seconds, "images_per_second": images / seconds}
            records += [*self.log.records, evaluation]
            self.log.records.clear()
            self.folder.write_records(records)
            write_run_page(self.folder.path)
        if first == len(self.scenario.steps):  # nothing was left to do, but a killed process may owe the last files
            self.folder.write_records(self.folder.lines())
            write_run_page(self.folder.path)
        self.log.close()

    def train_step(self, step: int) -> tuple[float, int]:
        """Train one step; return its seconds and images."""
        teacher = copy.deepcopy(self.model).eval().requires_grad_(False) if self.method.needs_teacher(step) else None
        context = self._context(step)
        self.model.eval().requires_grad_(True)
        self.method.begin_step(context)
        torch.manual_seed(torch_seed(self.config.seed, "train", step))  # dropout and the like
        optimizer = make_optimizer(self.config.optim, self.model, step)
        network, optimizer = self.fabric.setup(self.model, optimizer)
        set_training_mode(self.model, self.config, step)
        iterations = self._iterations(step)
        started = time.monotonic()
        self._loop(step, iterations, network, optimizer, teacher, self._batches(step, iterations, context.assigned))
        seconds = time.monotonic() - started
        self.method.end_step(context)
        return seconds, iterations * self.config.optim.accumulate * self.config.train.batch

    def _loop(
        self,
        step: int,
        iterations: int,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        teacher: nn.Module | None,
        batches: Iterator[Batch],
    ) -> None:
        schedule = make_schedule(self.config.optim, optimizer, iterations)
        with self.reporter.task(f"step {step} train", iterations) as task:
            for iteration in range(1, iterations + 1):
                parts = [
                    self._micro_step(network, teacher, next(batches), step, iteration)
                    for _ in range(self.config.optim.accumulate)
                ]
                terms = {name: sum(part[name] for part in parts) / len(parts) for name in parts[0]}
                if self.config.optim.clip > 0:
                    # Under fp16 an overflow is everyday business: the scaler skips that update.
                    self.fabric.clip_gradients(
                        network, optimizer, max_norm=self.config.optim.clip, error_if_nonfinite=False
                    )
                lr = float(schedule.get_last_lr()[0])
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                self.method.after_update(iteration)
                if self.log.due(iteration, iterations):
                    self.log.add(step, iteration, iterations, lr, terms)
                task.advance(f"loss {sum(terms.values()):.3f}")

    def _micro_step(
        self, network: nn.Module, teacher: nn.Module | None, batch: Batch, step: int, iteration: int
    ) -> dict[str, float]:
        """One forward and backward pass; return the value of every term."""
        out = network(batch.image, attentions=self.method.needs_attentions)
        old = None if teacher is None else self._without_gradient(teacher, batch.image)
        with torch.no_grad():
            targets = self.method.targets(batch, out, old)
        terms = self.method.losses(batch, out, old, targets)
        values = torch.stack(list(terms.values()))
        self.fabric.backward(values.sum() / self.config.optim.accumulate)
        self.method.observe(batch, out, targets, iteration)
        # Read last, and all at once: a device is not kept waiting.
        found = dict(zip(terms, values.tolist(), strict=True))
        self._check_finite(found, step, iteration)
        return found

    def _without_gradient(self, model: nn.Module, image: Tensor) -> SegOutput:
        """Run a network in the run's precision, outside Fabric's wrapping; the output is float32, as with it."""
        with torch.no_grad(), self.fabric.autocast():
            out: SegOutput = model(image, attentions=self.method.needs_attentions)
        return out.float()

    def _check_finite(self, terms: dict[str, float], step: int, iteration: int) -> None:
        if not all(math.isfinite(value) for value in terms.values()):
            listed = ", ".join(f"{name} = {value:.6g}" for name, value in terms.items())
            raise UserError(
                f"The loss is not finite at step {step}, iteration {iteration}: {listed}; lower optim.lr, set "
                "optim.clip, or use precision fp32 or bf16. Finished steps are kept."
            )

    def _check_weights(self, step: int) -> None:
        """Refuse to save a network that the last update broke."""
        broken = [name for name, value in self.model.state_dict().items() if not value.isfinite().all()]
        if broken:
            raise UserError(
                f"The network is not finite after step {step}: {', '.join(broken[:3])}; lower optim.lr or set "
                "optim.clip. Finished steps are kept."
            )

    def finish_step(self, step: int, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Evaluate and save a trained step; return its record."""
        self._check_weights(step)
        count = min(self.config.eval.examples, len(self.scenario.test_images))
        metrics, examples = evaluate(
            self.model,
            self.plan.data,
            self.config.data.test,
            self.scenario,
            step,
            batch=self.config.eval.batch,
            workers=self.config.train.workers,
            reporter=self.reporter,
            examples=count,
        )
        self._write_examples(count)
        self.folder.write_step(step, partial(self._save, step=step, examples=examples))
        earlier = [StepMetrics.from_json(record) for record in records if record["kind"] == "eval"]
        record = {"kind": "eval", **metrics.to_json(), **forgetting([*earlier, metrics]).to_json()}
        return record | {"average_over_steps": average_over_steps([*earlier, metrics])}

    def _save(self, path: Path, step: int, examples: list[Mask]) -> None:
        save_step(path, self.model, self.method, self.scenario, step)
        (path / "examples").mkdir()
        for k, mask in enumerate(examples):
            write_mask(path / "examples" / f"{k}.png", mask)

    def _write_examples(self, count: int) -> None:
        folder = self.folder.path / "examples"
        with writing(folder):
            folder.mkdir(exist_ok=True)
            for k, id in enumerate(self.scenario.test_images[:count]):
                sample = self.plan.data.read(self.config.data.test, id)
                Pillow.fromarray(sample.image).save(folder / f"{k}.image.png")
                write_mask(folder / f"{k}.truth.png", sample.mask)

    def _iterations(self, step: int) -> int:
        """Return the updates of a step: its epochs over its images, rounded up."""
        c = self.config.train
        epochs = c.epochs if step == 0 or c.later_epochs is None else c.later_epochs
        return math.ceil(epochs * len(self.scenario.steps[step].images) / (c.batch * self.config.optim.accumulate))

    def _batches(self, step: int, iterations: int, assigned: AssignedLabels | None) -> Iterator[Batch]:
        c = self.config.train
        dataset = StepDataset(
            data=self.plan.data,
            split=self.config.data.train,
            images=self.scenario.steps[step].images,
            table=self.scenario.train_table(step),
            assigned=assigned,
            augmentation=Augmentation(c.crop, c.scale, c.flip, c.jitter),
            seed=self.config.seed,
            step=step,
        )
        batches = iterations * self.config.optim.accumulate
        pin = self.fabric.device.type == "cuda"
        for batch in train_loader(dataset, c.batch, batches, c.workers, pin):
            yield batch.to(self.fabric.device).prepared()

    def _context(self, step: int) -> StepContext:
        return StepContext(
            step=step,
            old_classes=self.scenario.channels(step - 1),
            classes=self.scenario.channels(step),
            background=self.scenario.background,
            unlabelled=self.scenario.unlabelled,
            seed=self.config.seed,
            model=self.model,
            label_pixels=self.plan.label_pixels(step),
            pixels=int(self.plan.raw_pixels(step).sum()),
            scan=partial(self._scan, step),
        )

    def _scan(self, step: int) -> Iterator[Scanned]:
        """Run the model as it stands over the step's whole images."""
        images = self.scenario.steps[step].images
        whole = WholeImages(self.plan.data, self.config.data.train, images, self.scenario.train_table(step))
        with self.reporter.task(f"step {step} scan", len(images)) as task:
            for group in same_size_batches(whole, self.config.eval.batch, self.config.train.workers):
                image = torch.stack([item.image for item in group]).to(self.fabric.device)
                labels = torch.stack([item.labels for item in group]).to(self.fabric.device).long()
                output = self._without_gradient(self.model, image.float() / 255)
                yield Scanned([item.id for item in group], labels, output)
                for _ in group:
                    task.advance()
