"""A fake vLLM server: real processes, HTTP and event streams, no model; standard library only.

    python fake_vllm.py --port 8000 [options]          (any Python >= 3.11, from any folder; --port 0 picks one)

Options that vLLM has too: --host --port --model --served-model-name --max-model-len --max-num-seqs --api-key
(or VLLM_API_KEY) --speculative-config JSON (its num_speculative_tokens counts) --sse-keep-alive-interval.
Every other option of vLLM is accepted and ignored, with or without a value.

Options of the fake:
    --no-spec                 no speculation, and no speculative counters
    --spec-tokens K           draft tokens per step, 4 by default
    --accept 2,0,1,4          accepted drafts of a request's 2nd, 3rd, ... step, repeated
    --answer-tokens N         an answer ends by itself ("stop") after N tokens, 48 by default; `ignore_eos` overrides
    --reasoning-tokens N      the first N tokens of a chat answer are reasoning, 0 by default
    --reasoning-field F       reasoning (default), reasoning_content or both
    --engines N               that many `engine` labels in /metrics; requests go to them in turn
    --kv-tokens N             capacity behind kv_cache_usage_perc
    --version V               what /version says
    --worker-title T          title of the worker process, VLLM::Worker by default
    --time-scale X            measured start-up times x X: 0 by default (at once), 1 takes 44 s
    --start-delay S           idle and silent for S seconds before the engine process appears
    --start-busy S            the worker burns CPU for S seconds of silent start-up
    --fail-log FILE           print FILE during start-up and end, with --fail-exit CODE (1)
    --death-delay S           seconds between the death of one process and the end of the next, 0.2 by default
    --fault NAME=JSON         set a fault from the start, see below; may be repeated
    --hang-on-term --ignore-term      short for those two faults

POST /fake/faults {"NAME": VALUE, ...} switches faults while it runs:
    health, metrics           "ok", "hang", or a status as text ("503", "500", "404"); metrics also "empty", "garbage"
    metrics_text              a page served instead of the living one; null ends it
    completions               "ok", "hang" or a status: answers nothing although the engine runs
    freeze                    true: no step is made; /health stays 200, counters and gauges stand still
    error_after_tokens        n: an error event, then [DONE], once n tokens were sent
    end_after_tokens          n: the stream ends in order but without [DONE]
    cut_after_tokens          n: the connection is cut
    step_s                    seconds for one step, 0.005 by default
    prefill_s                 before the first token the worker burns CPU for so long and no counter moves
    log_lines_per_s           a flood of log lines
    ignore_term               every process ignores SIGTERM and SIGINT
    hang_on_term              SIGTERM with a request open never ends the API server, and later ones do nothing
    exit_code                 the API server ends at once with it, without clean-up
GET or POST /fake/state       the truth: open_streams, connections, steps, aborted, finished, generation_tokens,
    prompt_tokens, drafts, draft_tokens, accepted_tokens, requests_running, requests by path, the last answers
    (text, reasoning, completion_tokens, finish_reason), pids (api, core, worker), shm, dist, faults.

Signals and deaths are as measured on vLLM 0.32: SIGTERM ends the children, then the server with 0; EngineCore or
Worker killed gives 503, an error event and [DONE] in open streams, then exit 0; API server killed leaves EngineCore,
Worker, the shared memory and the rendezvous file; SIGSTOP of a child freezes all steps with /health still 200.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes.fake_vllm_engine import Engine, Faults  # found through the line above
from tests.fakes.fake_vllm_http import Api
from tests.fakes.fake_vllm_log import emit, lines
from tests.fakes.fake_vllm_processes import BUSY, ChildOptions, Children


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, usage="see the first lines of this file")
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0)
    add("--model", default="/models/fake")
    add("--served-model-name", default="fake")
    add("--max-model-len", type=int, default=4096)
    add("--max-num-seqs", type=int, default=8)
    add("--api-key", default=os.environ.get("VLLM_API_KEY") or None)
    add("--speculative-config", "-sc", type=json.loads, default=None)
    add("--sse-keep-alive-interval", type=float, default=0.0)
    add("--no-spec", action="store_true")
    add("--spec-tokens", type=int, default=4)
    add("--accept", default="2,0,1,4,3,0,1,2")
    add("--answer-tokens", type=int, default=48)
    add("--reasoning-tokens", type=int, default=0)
    add("--reasoning-field", choices=["reasoning", "reasoning_content", "both"], default="reasoning")
    add("--engines", type=int, default=1)
    add("--kv-tokens", type=int, default=524_288)
    add("--version", default="0.32.0")
    add("--worker-title", default="VLLM::Worker")
    add("--time-scale", type=float, default=0.0)
    add("--start-delay", type=float, default=0.0)
    add("--start-busy", type=float, default=0.0)
    add("--fail-log", type=Path)
    add("--fail-exit", type=int, default=1)
    add("--death-delay", type=float, default=0.2)
    add("--fault", action="append", default=[])
    add("--hang-on-term", action="store_true")
    add("--ignore-term", action="store_true")
    args, _ = parser.parse_known_args()
    if args.speculative_config:
        args.spec_tokens = args.speculative_config.get("num_speculative_tokens", args.spec_tokens)
    if args.no_spec:
        args.spec_tokens = 0
    return args


def _faults(args: argparse.Namespace) -> Faults:
    faults = Faults(hang_on_term=args.hang_on_term, ignore_term=args.ignore_term)
    for text in args.fault:
        name, _, value = text.partition("=")
        getattr(faults, name)  # a wrong name must not pass silently
        setattr(faults, name, json.loads(value))
    return faults


def _bind(args: argparse.Namespace) -> socket.socket:
    """Take the port, as vLLM does before it loads anything; nobody is answered until the server listens."""
    listener = socket.socket(socket.AF_INET6 if ":" in args.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((args.host, args.port))
    args.port = listener.getsockname()[1]
    return listener


def _start(args: argparse.Namespace, faults: Faults, listener: socket.socket) -> Children:
    """Print the start-up log in its time and bring up the children on the way."""
    began = time.monotonic()
    options = ChildOptions(
        worker_title=args.worker_title, death_delay_s=args.death_delay, ignore_term=faults.ignore_term
    )
    children: Children | None = None
    for line in lines(args, dist_file=str(options.dist_file)):
        if children is None and line.at_s > 16.4:
            if args.fail_log:
                _fail(args)
            time.sleep(args.start_delay)
            children = Children(options, listener=listener)
            _burn(children, args.start_busy)
        time.sleep(max(0.0, began + line.at_s * args.time_scale - time.monotonic()))
        pids = {"api": os.getpid()}
        if children is not None:
            pids |= {"core": children.core_pid, "worker": children.worker_pid}
        emit(line.text, who=line.who, pid=pids.get(line.who))
    assert children is not None
    return children


def _burn(children: Children, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        children.socket.sendall(BUSY)
        children.socket.recv(1)


def _fail(args: argparse.Namespace) -> NoReturn:
    sys.stdout.write(args.fail_log.read_text(encoding="utf-8"))
    sys.stdout.flush()
    os._exit(args.fail_exit)


class _Shutdown:
    """How the server ends: on a signal, and when an engine process has died."""

    def __init__(self, api: Api, engine: Engine, server: asyncio.Server, faults: Faults) -> None:
        self.api, self.engine, self.server, self.faults = api, engine, server, faults
        self.done = asyncio.Event()
        self.asked = False

    def on_signal(self) -> None:
        if self.asked or self.faults.ignore_term:
            return
        self.asked = True
        emit("INFO:     Shutting down\n", who="stderr")
        self.server.close()
        hang = self.faults.hang_on_term and self.api.open_streams > 0
        self.engine.stop()
        self.engine.children.terminate()
        if hang:
            emit("INFO:     Waiting for connections to close. (CTRL+C to force quit)\n", who="stderr")
            return
        self.done.set()

    async def watch_engine(self, death_delay_s: float) -> None:
        await self.engine.dead.wait()
        if not self.asked:
            text = "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
            emit(f"ERROR [async_llm.py:700] {text}", who="api", pid=os.getpid())
            await asyncio.sleep(death_delay_s)
            self.server.close()
            self.done.set()


async def _chatter(faults: Faults) -> None:
    """The log flood, while that fault is on."""
    number = 0
    while True:
        await asyncio.sleep(0.02)
        for _ in range(int(faults.log_lines_per_s * 0.02)):
            number += 1
            emit(f"INFO [flood.py:1] line {number} of a flood", who="api", pid=os.getpid())


async def _serve(args: argparse.Namespace, faults: Faults, listener: socket.socket, children: Children) -> None:
    loop = asyncio.get_running_loop()
    engine = Engine(args=args, children=children, faults=faults)
    api = Api(args=args, engine=engine, faults=faults)
    server = await loop.create_server(api.protocol, sock=listener)
    shutdown = _Shutdown(api, engine, server, faults)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.on_signal)
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(engine.run()),
        asyncio.create_task(_chatter(faults)),
        asyncio.create_task(shutdown.watch_engine(args.death_delay)),
    ]
    emit("INFO:     Application startup complete.\n", who="stderr")
    await shutdown.done.wait()
    await loop.run_in_executor(None, os.waitpid, children.core_pid, 0)
    api.cut()
    for task in tasks:
        task.cancel()
    emit("INFO:     Application shutdown complete.\n", who="stderr")
    os._exit(0)


def main() -> None:
    """Run the fake until a signal ends it."""
    args = _parse()
    faults = _faults(args)
    try:
        listener = _bind(args)
    except OSError as error:
        sys.exit(f"Traceback (most recent call last):\nOSError: [Errno {error.errno}] {os.strerror(error.errno or 0)}")
    children = _start(args, faults, listener)
    asyncio.run(_serve(args, faults, listener, children))


if __name__ == "__main__":
    main()
