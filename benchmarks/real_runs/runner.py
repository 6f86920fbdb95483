"""Training of many jobs side by side, in worker processes, with a limit of time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from faircl.runs.begun import is_begun
from faircl.runs.environment import environment
from real_runs.first_steps import begin, first_step_key, has_first_step, source_commit
from real_runs.plan import Job
from real_runs.results import Results, run_result
from real_runs.workers import Command, Workers

POLL_SECONDS = 0.5
GRACE_SECONDS = 45.0
"""Time that a run has to write its checkpoint after SIGTERM."""
ERROR_LINES = 8


class Runner:
    """Trains jobs into ``out/runs``, ``slots`` at a time, in the order in which they are given.

    Of jobs with the same first step one trains it; the others wait for it, copy it and continue. A first step of
    another commit is not copied. ``stop`` says when to end: nothing is started any more and what is running gets
    SIGTERM, saves a checkpoint and is continued by the next call. ``commit`` is recorded where the source has no git.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        out: Path,
        slots: int,
        stop: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = print,
        commit: str = "",
    ) -> None:
        self.out, self.slots, self.stop, self.say = out, slots, stop, say
        self.results = Results(out / "results.jsonl")
        finished = self.results.runs()
        self.groups: dict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            self.groups[first_step_key(job)].append(job)
        self.group_of = {job.name: group for group in self.groups.values() for job in group}
        self.waiting = [job for job in jobs if job.name not in finished]
        self.running: dict[str, tuple[Job, Command]] = {}
        self.failed: set[str] = set()
        self.commit, self.given_commit = environment()["commit"], commit
        for name in ("runs", "logs"):
            (out / name).mkdir(parents=True, exist_ok=True)

    def run(self) -> bool:
        """Train what is not finished; return whether all is finished now."""
        already = sum(map(len, self.groups.values())) - len(self.waiting)
        self.say(f"{len(self.waiting)} runs to train, {already} finished before")
        with Workers() as self.workers:
            try:
                while (self.waiting or self.running) and not self.stop():
                    self._collect()
                    self._start_some()
                    if not self.running and not self._startable():
                        break
                    time.sleep(POLL_SECONDS)
            finally:
                self._end_all()
        return not self.waiting and not self.failed

    def folder(self, job: Job) -> Path:
        """Return the run folder of a job."""
        return self.out / "runs" / job.name

    # Starting

    def _start_some(self) -> None:
        while len(self.running) < self.slots and (ready := self._startable()):
            self.waiting.remove(ready[0])
            self._start(ready[0])

    def _startable(self) -> list[Job]:
        """Return the waiting jobs that need no first step, have one, or are the ones to train it."""
        return [job for job in self.waiting if is_begun(self.folder(job)) or self._source(job) or self._trains(job)]

    def _source(self, job: Job) -> Path | None:
        """Return the folder of a run with the same first step, finished at the same commit."""
        folders = [self.folder(other) for other in self.group_of[job.name] if other.name != job.name]
        same = (folder for folder in folders if source_commit(folder) == self.commit)
        return next(filter(has_first_step, same), None)

    def _trains(self, job: Job) -> bool:
        """Whether a job is the one that trains the first step of its group: the first of those running or waiting."""
        unfinished = {*self.running, *(other.name for other in self.waiting)}
        able = (other for other in self.group_of[job.name] if other.name in unfinished and self._current(other))
        return next(able, job) is job

    def _current(self, job: Job) -> bool:
        """Whether a job is not begun yet, or was begun at this commit."""
        return source_commit(self.folder(job)) in (None, self.commit)

    def _start(self, job: Job) -> None:
        folder, how = self.folder(job), "continues"
        if not is_begun(folder):
            first = self._source(job)
            begin(folder, job.config, first)
            how = "begins" if first is None else f"begins after the first step of {first.name}"
        self.running[job.name] = job, self.launch(job)
        self.say(f"{job.name} {how}")

    def launch(self, job: Job) -> Command:
        """Start the training of a job in a worker; its output goes to a log."""
        root = getattr(job.config.data, "root", None)
        place = () if root is None else ("--root", str(root))
        return self.workers.start(("train", "--resume", str(self.folder(job)), *place), self._log(job))

    # Ending

    def _collect(self) -> None:
        """Record the jobs that have ended."""
        for name, (job, process) in list(self.running.items()):
            if (code := process.poll()) is None:
                continue
            del self.running[name]
            if code == 0:
                result = run_result(job, self.folder(job), self.given_commit)
                self.results.append(result)
                found = f"{result['images']} mIoU {result['steps'][-1]['all']:.1f}"
                self.say(f"{name} ends: {found} after {result['seconds']:.0f} s of training")
            else:
                self.failed.add(name)
                self._report_failure(job, code)

    def _report_failure(self, job: Job, code: int) -> None:
        lines = self._log(job).read_text(encoding="utf-8", errors="replace").splitlines()[-ERROR_LINES:]
        text = "\n  ".join([f"{job.name} fails with exit code {code}; the end of {self._log(job)}:", *lines])
        self.say(text)
        with (self.out / "failed.log").open("a", encoding="utf-8") as file:
            file.write(text + "\n")

    def _end_all(self) -> None:
        """Let running jobs save a checkpoint and end; those that have ended by themselves are recorded."""
        self._collect()
        for _, process in self.running.values():
            process.terminate()
        until = time.monotonic() + GRACE_SECONDS
        for name, (job, process) in self.running.items():
            if process.wait(max(until - time.monotonic(), 0.1)) is None:
                process.kill()
                process.wait()
            self.waiting.append(job)
            self.say(f"{name} is interrupted; the same command continues it")
        self.running.clear()

    def _log(self, job: Job) -> Path:
        return self.out / "logs" / f"{job.name}.log"
