"""The fake engine's own processes: EngineCore and Worker, named and behaving as vLLM's do.

EngineCore is a child of the API server, Worker a child of EngineCore, all in one session. Every step of the
engine is echoed through both, so stopping one (SIGSTOP) freezes the engine as it does with the real one.
EngineCore outlives a killed API server; Worker ends when EngineCore does.
"""

import contextlib
import ctypes
import mmap
import os
import secrets
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

STEP, BUSY, IGNORE_TERM = b"s", b"b", b"i"


def rename(title: str) -> None:
    """Give this process another name and command line; without SPT_NOENV its environment is wiped too.

    vLLM's titles do the same to /proc/PID/environ, which is why a run id there needs SPT_NOENV=1.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(15, title.encode()[:15], 0, 0, 0)  # PR_SET_NAME
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    arg_start, arg_end, env_start, env_end = (int(field) for field in fields[45:49])
    ctypes.memmove(arg_start, title.encode().ljust(arg_end - arg_start, b"\0"), arg_end - arg_start)
    if "SPT_NOENV" not in os.environ:
        ctypes.memset(env_start, 0, env_end - env_start)


def _exit_on_term(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _follow_ignore(message: bytes) -> None:
    if message == IGNORE_TERM:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)


def _worker(link: socket.socket, dist_file: Path, death_delay_s: float) -> None:
    """Answer steps until EngineCore is gone; a clean end removes the rendezvous file."""
    try:
        dist_file.touch()
        while message := link.recv(1):
            _follow_ignore(message)
            if message == BUSY:
                end = time.process_time() + 0.02
                while time.process_time() < end:
                    pass
            link.sendall(message)
    except SystemExit:
        dist_file.unlink(missing_ok=True)
        raise
    except OSError:
        pass
    time.sleep(death_delay_s)
    os._exit(1)


def _core(link: socket.socket, options: "ChildOptions") -> None:
    """Pass steps on to the worker; a clean end stops it and removes the shared memory."""
    shm = options.shm_file
    handle = os.open(shm, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    os.ftruncate(handle, 4096)
    memory = mmap.mmap(handle, 4096)
    memory[:4] = b"fake"
    near, far = socket.socketpair()
    worker = os.fork()
    if worker == 0:
        near.close()
        link.close()
        rename(options.worker_title)
        _run(lambda: _worker(far, options.dist_file, options.death_delay_s))
    far.close()
    try:
        link.sendall(worker.to_bytes(4, "big"))
        links = [near, link]
        while True:
            ready, _, _ = select.select(links, [], [])
            if near in ready and near.recv(1) == b"":
                os.waitpid(worker, 0)
                print(
                    f"(EngineCore pid={os.getpid()}) ERROR [multiproc_executor.py:315] Worker proc VllmWorker-0 "
                    "died unexpectedly (exit code: -9), shutting down executor.",
                    flush=True,
                )
                time.sleep(options.death_delay_s)
                os._exit(1)
            if link in ready:
                message = link.recv(1)
                if message == b"":  # the API server is gone: the real EngineCore stays, and so does this one
                    links.remove(link)
                    continue
                _follow_ignore(message)
                near.sendall(message)
                if near.recv(1):
                    link.sendall(message)
    except SystemExit:
        os.kill(worker, signal.SIGTERM)
        os.waitpid(worker, 0)
        shm.unlink(missing_ok=True)
        raise
    except OSError:
        os._exit(1)


def _run(main: Callable[[], None]) -> NoReturn:
    """Run a child's main function; a forked child must never return into its parent's code."""
    code = 1
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        os._exit(code)


class ChildOptions:
    """Where the children leave their traces, and how they are called."""

    def __init__(self, *, worker_title: str, death_delay_s: float, ignore_term: bool) -> None:
        self.worker_title = worker_title
        self.death_delay_s = death_delay_s
        self.ignore_term = ignore_term
        self.shm_file = Path("/dev/shm") / f"psm_{secrets.token_hex(4)}"
        self.dist_file = Path(tempfile.gettempdir()) / f"vllm_dist_{secrets.token_hex(16)}"


class Children:
    """The API server's end: the children's pids and the socket that carries the steps."""

    def __init__(self, options: ChildOptions, *, listener: socket.socket) -> None:
        self.options = options
        near, far = socket.socketpair()
        sys.stdout.flush()
        self.core_pid = os.fork()
        if self.core_pid == 0:
            near.close()
            listener.close()  # the port is free again once the API server is gone
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN if options.ignore_term else _exit_on_term)
            rename("VLLM::EngineCore")
            _run(lambda: _core(far, options))
        far.close()
        self.worker_pid = int.from_bytes(near.recv(4), "big")
        self.socket = near

    def terminate(self) -> None:
        """Send SIGTERM to EngineCore, which stops its worker."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.core_pid, signal.SIGTERM)
