"""MLflow: a run on the server of MLFLOW_TRACKING_URI, or in the database ``mlflow.db`` of a run's folder."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from faircl.config.overrides import given_settings
from faircl.engine.loggers.points import Point
from faircl.engine.loggers.service import Begun, RunInfo, Status
from faircl.runs.reading import CONFIG

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT, DATABASE, ARTIFACTS = "faircl", "mlflow.db", "mlflow-artifacts"
PARAMETERS, METRICS, LONGEST_VALUE = 100, 1000, 500
"""What one request may hold, and the characters of a parameter that every version of the server takes."""
_STATES: dict[Status, str] = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}
_MANNERS = {
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
"""Variables while MLflow is called, where they are not set: training waits for a lost server a minute, not for long."""


class MlflowRun:
    """A run of MLflow, through its client: what a script itself logs with MLflow is left alone."""

    title: ClassVar[str] = "MLflow"
    extra: ClassVar[str] = "mlflow"
    rewinds: ClassVar[bool] = False

    @staticmethod
    def packages() -> tuple[str, ...]:
        """MLflow or its small form; its database needs two more."""
        return ("mlflow", "sqlalchemy", "alembic") if _server() is None else ("mlflow",)

    @staticmethod
    def check() -> None:
        """Nothing but its packages is needed."""

    def begin(self, run: RunInfo, id: str | None) -> Begun:
        """Create a run with all settings as parameters, or continue one."""
        with _quiet():
            from mlflow import MlflowClient

            server, folder = _server(), run.folder.resolve()
            self._client = MlflowClient(server or f"sqlite:///{folder / DATABASE}")
            artifacts = None if server else (folder / ARTIFACTS).as_uri()
            if id is None:
                experiment = _experiment(self._client, artifacts)
                self._id = self._client.create_run(experiment, run_name=run.title).info.run_id
                self._describe(run)
            else:
                self._id = id
                self._client.update_run(id, status="RUNNING")
            uri = self._client.get_run(self._id).info.artifact_uri
            self._keeps_files = server is not None or str(uri).startswith(str(artifacts))  # not if the folder has moved
        return Begun(self._id, server or str(folder / DATABASE))

    def _describe(self, run: RunInfo) -> None:
        from mlflow.entities import Param

        parameters = [Param(key, _text(value)) for key, value in given_settings(run.settings).items()]
        for first in range(0, len(parameters), PARAMETERS):
            self._client.log_batch(self._id, params=parameters[first : first + PARAMETERS])
        self._client.log_artifact(self._id, str(run.folder / CONFIG))

    def log(self, point: Point) -> None:
        """Log the numbers of a record in one request."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(name, value, now, point.position.update) for name, value in point.scalars.items()]
        with _quiet():
            for first in range(0, len(metrics), METRICS):
                self._client.log_batch(self._id, metrics=metrics[first : first + METRICS])

    def end(self, status: Status, report: Path | None) -> None:
        """Keep the report page and set the state of the run."""
        with _quiet():
            try:
                if report is not None and self._keeps_files:
                    self._client.log_artifact(self._id, str(report))
            finally:
                self._client.set_terminated(self._id, _STATES[status])


def _server() -> str | None:
    """Return where runs are tracked, if the environment says so."""
    return os.environ.get("MLFLOW_TRACKING_URI") or None


def _experiment(client: MlflowClient, artifacts: str | None) -> str:
    """Return the id of the experiment that the environment names, or of the one called faircl; make it if needed."""
    if id := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return id
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
    known = client.get_experiment_by_name(name)
    return str(client.create_experiment(name, artifact_location=artifacts) if known is None else known.experiment_id)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow from printing, and from waiting long for a server."""
    import mlflow  # which sets the level of its logger

    logger = logging.getLogger(mlflow.__name__)
    level = logger.level
    added = {name: value for name, value in _MANNERS.items() if name not in os.environ}
    os.environ.update(added)
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name in added:
            os.environ.pop(name, None)
