"""Starts the engine's process and writes down, before and after, what proves it ours."""

import os
import subprocess
import time
from pathlib import Path

from backend.errors import EngineError
from backend.events import RunState
from backend.launch import processes
from backend.launch.command import Launch
from backend.launch.run_folder import RunFolder, RunRecord


def spawn(folder: RunFolder, launch: Launch, *, temp_dir: Path) -> tuple[RunRecord, subprocess.Popen[bytes]]:
    """Start the engine in a session of its own, writing into the run's log, never into a pipe: it outlives us.

    Raises:
        EngineError: the interpreter could not be run.
        OSError: the run's folder cannot be written; nothing was started.
    """
    record = RunRecord(
        run_id=folder.run_id,
        profile=launch.profile_name,
        environment=launch.environment_id,
        host=launch.host,
        port=launch.port,
        url=launch.url,
        served_model_name=launch.served_model_name,
        argv=list(launch.argv),
        temp_dir=str(temp_dir),
        created_at=time.time(),
        boot_id=processes.boot_id(),
    )
    if launch.api_key is not None:
        folder.write_key(launch.api_key)
    folder.write(record)  # if we die right after the spawn, the run id still proves the orphans ours
    handle = os.open(folder.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            launch.argv,
            env=dict(launch.env),
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        record.ended_at, record.state, record.cause = time.time(), RunState.FAILED, str(error)
        folder.write(record)
        raise EngineError(
            f"The engine's Python could not be started: {error}.",
            "Settings and `specdeck engines list` show which environments are sound.",
        ) from error
    finally:
        os.close(handle)
    stat = processes.read_stat(child.pid)
    record.pid, record.start_ticks = child.pid, stat.start_ticks if stat else None
    record.state = RunState.STARTING
    return record, child
