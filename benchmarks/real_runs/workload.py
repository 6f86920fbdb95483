"""How long jobs are, counted in training images, so that the longest begin first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from faircl.config.run import parse_data
from faircl.progress import SilentReporter
from faircl.registry import is_joint
from faircl.scenario import make_scenario
from real_runs.plan import Job, Place, read_plan


def read_plans(paths: Sequence[Path], place: Place) -> list[Job]:
    """Return the jobs of several plans, those of the first plan first, of each the longest; a run of two plans once."""
    found: dict[str, Job] = {}
    for path in paths:
        for job in longest_first(read_plan(path, place)):
            found.setdefault(job.name, job)
    return list(found.values())


def longest_first(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs by falling length; equal ones keep their order."""
    return sorted(jobs, key=lambda job: -images(job))


def images(job: Job) -> float:
    """Count the images that a job trains on: those of every step, times its epochs."""
    train = job.config.train
    later = train.epochs if train.later_epochs is None else train.later_epochs
    sections = job.config.model_dump(mode="json", include={"data", "scenario"})
    first, *others = _step_images(json.dumps(sections), is_joint(job.config.method.name))
    return first * train.epochs + sum(others) * later


@cache
def _step_images(sections: str, joint: bool) -> tuple[int, ...]:
    """Return the number of training images of every step; masks are counted here, once for all jobs."""
    reader, scenario = parse_data(json.loads(sections))
    made = make_scenario(reader.open(), reader, scenario, SilentReporter(), joint=joint)
    return tuple(len(step.images) for step in made.scenario.steps)
