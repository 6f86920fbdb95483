"""Two tiny steps, made by hand: four 24×24 images, two classes per step, with or without a background class."""

import copy
import json

import torch
from safetensors.torch import load_file, save_file

from faircl.labels import BACKGROUND, IGNORE, UNLABELLED
from faircl.loading.batch import Batch, FixedWindow
from faircl.methods.base import ScannedBatch, StepContext
from faircl.methods.state import MethodState, method_state
from faircl.models.small import Small, SmallConfig
from faircl.registry import METHODS

SIZE, IMAGES, PERIOD = 24, 4, 2


def through_disk(method, folder):
    """The state of a method, written to files and read back."""
    state = method_state(method)
    save_file({name: value.contiguous() for name, value in state.tensors.items()}, folder / "method.safetensors")
    (folder / "method.json").write_text(json.dumps(state.numbers))
    return MethodState(load_file(folder / "method.safetensors"), json.loads((folder / "method.json").read_text()))


class World:
    """Images whose colours tell their classes; ``truth`` holds the channels after the last step."""

    def __init__(self, background=True, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.background, self.first = background, int(background)
        self.unlabelled = BACKGROUND if background else UNLABELLED
        self.channels = [self.first + 2, self.first + 4]
        blocks = torch.randint(self.channels[1], (IMAGES, 3, 3), generator=gen)
        blocks.view(IMAGES, -1)[:, : self.channels[1]] = torch.arange(self.channels[1])
        self.truth = blocks.repeat_interleave(8, 1).repeat_interleave(8, 2)
        colours = torch.rand((self.channels[1], 3), generator=gen)
        noise = 0.1 * torch.rand((IMAGES, SIZE, SIZE, 3), generator=gen)
        self.image = (0.9 * colours[self.truth] + noise).permute(0, 3, 1, 2).contiguous()
        self.void = torch.zeros(SIZE, SIZE, dtype=torch.bool)
        self.void[20:, 18:] = True

    def labels(self, step):
        old = self.channels[step - 1] if step else self.first
        visible = (self.truth >= old) & (self.truth < self.channels[step])
        return self.truth.where(visible, self.unlabelled).masked_fill(self.void, IGNORE)

    def context(self, step, model):
        def scan(windows=0, most=None):
            # A fixed window is the whole image, so that all windows of an image are alike.
            for turn in range(max(windows, 1)):
                for k in range(0, IMAGES, 2):
                    with torch.no_grad():
                        output = model(self.image[k : k + 2])
                    numbers = [one * windows + turn for one in (k, k + 1)] if windows else None
                    yield ScannedBatch([str(k), str(k + 1)], self.labels(step)[k : k + 2], output, numbers)

        labels = self.labels(step)
        classes = self.channels[step]
        return StepContext(
            step=step,
            old_classes=self.channels[step - 1] if step else 0,
            classes=classes,
            background=self.background,
            unlabelled=self.unlabelled,
            seed=11,
            model=model,
            label_pixels=torch.bincount(labels[labels < classes], minlength=classes),
            label_images=torch.stack([(labels == c).any((1, 2)).sum() for c in range(classes)]),
            pixels=int((labels != IGNORE).sum()),
            scan=scan,
        )

    def batch(self, step, assigned=None, index=(0, 1), first_draw=0, windows=0, soft=None):
        chosen = list(index)
        fixed = tuple(FixedWindow(k * windows, False) for k in chosen) if windows else None
        given = None if soft is None else soft.of(fixed, torch.device("cpu"))
        masks = None
        if assigned is not None:
            masks = torch.stack([torch.from_numpy(assigned[str(k)].astype("int64")) for k in chosen])
        draws = first_draw + torch.arange(len(chosen))
        return Batch(self.image[chosen], self.labels(step)[chosen], masks, draws, windows=fixed, soft=given)


class Run:
    """A network and its method, driven as the engine drives them."""

    def __init__(self, world=None, norm="group", seed=0, **method):
        self.world = world or World()
        torch.manual_seed(seed)
        self.model = Small(SmallConfig(width=8, embedding=8, norm=norm))
        config = METHODS.parse_config({"name": "faircl-paper", **method})
        self.method = METHODS.get(config.name)(config, self.model)
        self.teacher = self.context = self.optimizer = None
        self.step, self.iteration = -1, 0

    def begin(self, step, lr=0.01):
        self.step, self.iteration = step, 0
        self.context = self.world.context(step, self.model.eval())
        wanted = self.method.needs_teacher(self.context)
        self.teacher = copy.deepcopy(self.model).eval().requires_grad_(False) if wanted else None
        self.method.begin_step(self.context)
        self.model.train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr)
        return self

    def batch(self, index=(0, 1)):
        draw = self.iteration * len(index)
        context = self.context
        return self.world.batch(self.step, context.assigned, index, draw, context.windows, context.soft)

    def forward(self, batch=None):
        """Return (batch, output, targets, terms)."""
        batch = batch or self.batch()
        out = self.model(batch.image)
        with torch.no_grad():
            old = self.teacher(batch.image) if self.teacher is not None else None
            targets = self.method.targets(batch, out, old)
        return batch, out, targets, self.method.losses(batch, out, old, targets)

    def iterate(self, times=1, batch=None):
        """Train; return the terms of every iteration as floats."""
        history = []
        for _ in range(times):
            given, out, targets, terms = self.forward(batch)
            torch.stack(list(terms.values())).sum().backward()
            self.update(given, out, targets)
            history.append({name: value.item() for name, value in terms.items()})
        return history

    def update(self, batch, out, targets):
        """Step the optimiser once gradients are there."""
        self.iteration += 1
        self.method.observe(batch, out, targets, self.iteration)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.method.after_update(self.iteration)

    def end(self):
        self.method.end_step(self.context)
        return self

    def to_step_one(self, iterations=5):
        self.begin(0)
        self.iterate(iterations)
        return self.end().begin(1)
