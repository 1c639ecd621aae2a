"""Control: the one object a front end holds; it wires the rooms and hands each what it needs of another."""

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from backend import paths, settings
from backend.checkpoints import catalog
from backend.checkpoints.catalog import BUILT_PREFIX, ModelFiles, ModelState
from backend.errors import ModelError, ProfileError, UserError
from backend.events import Finding, HostSample, RunStatus, Sample
from backend.hardware import NvidiaDriver
from backend.launch import command, ending, kept_secrets, leftovers, preflight, processes, profile_toml, run_folder
from backend.launch.environments import EngineEnvironment
from backend.launch.leftovers import Leftover
from backend.launch.profile import Profile
from backend.launch.profile_store import ProfileStore
from backend.launch.run_folder import RunFolder
from backend.launch.supervisor import ENDED, Supervisor
from backend.telemetry import nvml
from backend.telemetry.history import History
from backend.telemetry.host import HostReader
from backend.telemetry.run_store import UNSEEN_END, RunEnd
from backend.telemetry.sampler import Sampler

log = logging.getLogger(__name__)

_HUB_TIMEOUT_S = 10.0


class Control:
    """Starts, adopts, watches and ends engines, and knows the profiles.

    Coroutines belong to the event loop that runs them; the other methods may block for a moment (disk, /proc) and
    a window calls them from a worker thread.

    Attributes:
        settings: the user's settings, read once.
        profiles: presets and the user's own profiles.
    """

    def __init__(self) -> None:
        self.settings = settings.load()
        self.profiles = ProfileStore()
        self._folders = paths.folders()

    # ---- before a start --------------------------------------------------------------------------------------

    def check(self, profile: Profile, environment: EngineEnvironment) -> list[Finding]:
        """Return what speaks against a start; blocking, and asks the hub for the size of missing weights."""
        found = preflight.check_environment(environment)
        if not found:
            found += command.check(profile, environment)
        port = profile.server.port
        found += preflight.check_port(profile.server.host, port) or preflight.check_runs(port, self.live_runs())
        found += preflight.check_weights(
            [(files, *self._size(profile, files)) for files in self.missing_models(profile) if not _is_built(files)]
        )
        return found

    def missing_models(self, profile: Profile) -> list[ModelFiles]:
        """Return the target and draft that are not whole on this machine."""
        wanted = [(profile.target.model, profile.target.revision)]
        if profile.speculation.model is not None and profile.speculation.method != "custom_class":
            wanted.append((profile.speculation.model, profile.speculation.revision))
        located = [catalog.locate(model, revision=revision, built=self._folders.models) for model, revision in wanted]
        return [files for files in located if files.state is not ModelState.COMPLETE]

    def _needs_hub(self, profile: Profile) -> bool:
        """Whether vLLM must be let to the hub: else it is kept offline, so that it starts without a network."""
        tokenizer = profile.target.tokenizer
        return bool(self.missing_models(profile)) or (tokenizer is not None and catalog.is_hub_name(tokenizer))

    def _size(self, profile: Profile, files: ModelFiles) -> tuple[int | None, bool]:
        """Bytes to download, and whether that is only the profile's approximate figure."""
        is_target = files.model == profile.target.model
        revision = profile.target.revision if is_target else profile.speculation.revision
        try:
            whole = catalog.hub_size(files.model, revision, timeout_s=_HUB_TIMEOUT_S)
        except ModelError:
            known = profile.target.download_bytes if is_target else profile.speculation.download_bytes
            return (None if known is None else max(0, known - files.present_bytes)), True
        return max(0, whole - files.present_bytes), False

    # ---- runs --------------------------------------------------------------------------------------------------

    async def start(
        self, profile: Profile, environment: EngineEnvironment, *, on_change: Callable[[Supervisor], None]
    ) -> Supervisor:
        """Spawn the engine of a profile and supervise it.

        Weights that are missing are fetched by vLLM: ask before, with `check`.

        Raises:
            UserError: the profile does not fit the environment, or the engine cannot be spawned.
        """
        runs = self._folders.runs
        await asyncio.to_thread(
            run_folder.prune, runs, keep=self.settings.keep_runs, keep_bytes=self.settings.keep_runs_bytes
        )
        offline = not await asyncio.to_thread(self._needs_hub, profile)
        usual = await asyncio.to_thread(self._usual, profile.name)
        folder = RunFolder.create(runs, profile.name)
        temp_dir: Path | None = None
        try:
            folder.write_profile(profile_toml.dumps(profile))
            # Short and outside the run's folder: sockets in it have paths of at most 107 bytes.
            temp_dir = Path(tempfile.mkdtemp(prefix=ending.temp_prefix(folder.run_id)))
            kept = await asyncio.to_thread(kept_secrets.load, profile.name)
            api_key = kept.pop(kept_secrets.API_KEY, "") or secrets.token_urlsafe(32)
            base_env = {**os.environ, **kept}
            needs_gpus = command.needs_gpu_list(profile, environment, base_env)
            launch = command.build(
                profile,
                environment=environment,
                run_id=folder.run_id,
                temp_dir=temp_dir,
                models=self._folders.models,
                api_key=api_key if profile.server.api_key else None,
                offline=offline,
                base_env=base_env,
                gpus=await asyncio.to_thread(_gpu_list) if needs_gpus else None,
            )
            return await Supervisor.start(
                folder, launch, temp_dir=temp_dir, settings=self.settings, usual=usual, on_change=on_change
            )
        except BaseException:
            if temp_dir is not None:
                shutil.rmtree(temp_dir, ignore_errors=True)
            if folder.record() is None:
                shutil.rmtree(folder.path, ignore_errors=True)
            raise

    async def adopt(self, folder: RunFolder, *, on_change: Callable[[Supervisor], None]) -> Supervisor | None:
        """Supervise an engine that was left running; None when somebody else does, or it has died."""
        record = folder.record()
        usual = await asyncio.to_thread(self._usual, record.profile) if record else {}
        return await Supervisor.adopt(folder, settings=self.settings, usual=usual, on_change=on_change)

    def leftovers(self) -> list[Leftover]:
        """Return runs without an owner: engines to adopt, and orphans."""
        return leftovers.survey(self._folders.runs)

    def live_runs(self) -> list[RunStatus]:
        """Return every run that lives, whoever supervises it."""
        return leftovers.live_runs(self._folders.runs)

    def run(self, run_id: str) -> RunFolder:
        """Return the folder of a run."""
        return RunFolder(self._folders.runs / run_id)

    async def stop(self, run_id: str, *, hurry: asyncio.Event) -> str:
        """End a run, whoever supervises it; returns what could not be ended, in words, "" normally.

        An owner that lives is asked to, and does it; without one we climb down the ladder ourselves.

        Args:
            run_id: the run.
            hurry: when set, KILL comes at once; an owner is no longer waited for.

        Raises:
            UserError: the owner did not end it in time, is suspended, or was not waited for.
        """
        folder = self.run(run_id)
        try:
            folder.request_stop()
        except OSError:  # not even an empty file fits: the owner stops its engine at SIGTERM
            if (owner := folder.owner_pid()) is not None:
                os.kill(owner, signal.SIGTERM)
        limit_s = 2 * self.settings.stop_grace_s + 15
        deadline = asyncio.get_running_loop().time() + limit_s
        while True:
            owner = folder.owner_pid()
            if owner is None:
                found = await asyncio.to_thread(self.leftovers)
                leftover = next((left for left in found if left.folder.run_id == run_id), None)
                if leftover is None:
                    return ""
                words = await leftovers.end(leftover, grace_s=self.settings.stop_grace_s, hurry=hurry)
                if words is not None:
                    return words
            elif hurry.is_set():
                raise UserError(f"Not waited for: process {owner} goes on ending {run_id}.")
            elif (stat := processes.read_stat(owner)) is not None and stat.state in "Tt":
                raise UserError(
                    f"Process {owner}, which supervises {run_id}, is suspended; it ends the engine when it goes on.",
                    f"Let it go on with: kill -CONT {owner}",
                )
            elif asyncio.get_running_loop().time() > deadline:
                raise UserError(
                    f"Process {owner} supervises {run_id} and did not end it within {limit_s:.0f} s.",
                    "End that process, then stop the engine again, here or with `specdeck stop`.",
                )
            await asyncio.sleep(0.1)

    def fate(self, run_id: str) -> RunEnd | None:
        """Return how a run ended, from its folder; None while it lives. Blocking for some milliseconds."""
        folder = self.run(run_id)
        if folder.owner_pid() is not None:
            return None
        record = folder.record_or_guess()  # of a folder that was deleted since, the run id tells
        if record.ended_at is None and processes.members(record.identity):
            return None
        if record.ended_at is None or record.cause == leftovers.ENDED_UNSEEN:
            return RunEnd(None, UNSEEN_END)
        return RunEnd.of(record.state, record.cause, record.ended_at)

    def started_profile(self, folder: RunFolder) -> Profile | None:
        """Return the profile as it was when a run was started; None when that is not known."""
        record, text = folder.record(), folder.profile_text()
        if record is None or text is None:
            return None
        try:
            return profile_toml.loads(text, name=record.profile)
        except ProfileError as error:
            log.warning("The profile kept with run %s cannot be read: %s", folder.run_id, error)
            return None

    def default_demo(self) -> Profile:
        """Return the shipped demo with the best measured ratio to no speculation."""
        shipped = [stored.profile for stored in self.profiles.list() if stored.read_only]
        demos = [profile for profile in shipped if profile is not None and profile.demo]
        return max(demos, key=lambda profile: profile.measured.speed_ratio if profile.measured else 0.0)

    def _usual(self, profile: str) -> dict[str, float]:
        return run_folder.usual_phases(run_folder.all_runs(self._folders.runs), profile=profile)

    # ---- watching ----------------------------------------------------------------------------------------------

    async def samples(self, run: Supervisor, history: History) -> AsyncGenerator[tuple[Sample, HostSample], None]:
        """Sample a run and the host at the set interval, into `history`, until the run ends.

        The supervisor learns from each reading whether the engine's counters still move.
        """
        sampler = Sampler(run.api, interval_s=self.settings.sample_interval_s)
        host = HostReader()
        async with contextlib.aclosing(sampler.samples()) as readings:
            async for sample in readings:
                if run.state in ENDED:
                    return
                self.observe(run, sampler, sample)
                machine = host.read()
                history.append(sample)
                history.append_host(machine)
                yield sample, machine

    def observe(self, run: Supervisor, sampler: Sampler, sample: Sample) -> None:
        """Let a supervisor know from a reading whether the engine's counters still move."""
        current = sampler.reading if sample.requests_running is not None else None
        run.observe(
            current.counters if current else None,
            requests_outstanding=bool((sample.requests_running or 0) + (sample.requests_waiting or 0)),
        )


def _is_built(files: ModelFiles) -> bool:
    return files.model.startswith(BUILT_PREFIX)


def _gpu_list() -> tuple[tuple[str, int], ...] | None:
    """Return (UUID, number in PCI order) of this machine's GPUs, None when the driver does not answer."""
    driver = nvml.ask_child()
    if not isinstance(driver, NvidiaDriver):
        return None
    return tuple((gpu.uuid, number) for number, gpu in enumerate(driver.gpus))
