"""The profiles as the window sees them: list, form, checks while typing, the exact command, and changes."""

import asyncio
import builtins
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.control import Control
from backend.desk import profile_fields, profile_findings, profile_text
from backend.desk.engines import Engines
from backend.desk.runs import Runs
from backend.desk.types import ProfileCheck, ProfileEntry, ProfileForm
from backend.errors import ProfileError, UserError
from backend.events import Finding, Severity
from backend.launch import command, environments
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile
from backend.launch.profile_model import Target
from backend.launch.profile_store import StoredProfile

NO_ENGINE = "Install or add an engine in Settings to see the exact command."
_ASKING = "The engine is being asked what it accepts. This takes about 20 s, once."
_KEEP_ENGINE_S = 5.0  # while somebody types, the same engine serves
_KEEP_RATIO = 10  # "no engine works" that took long to find out is kept so much longer: it is found anew each time
_PATIENCE_S = 0.25  # a first probe takes far longer than anybody waits for a form
_METHODS = {"ngram": "n-gram", "ngram_gpu": "n-gram", "eagle": "EAGLE", "eagle3": "EAGLE-3", "mtp": "MTP"}


@dataclass(frozen=True, slots=True)
class _Engine:
    """The engine that would serve; None with the reason in `why` when there is none."""

    environment: EngineEnvironment | None = None
    why: str = NO_ENGINE
    problem: Finding | None = None
    pending: bool = False


class Profiles:
    """Presets and the person's own profiles; every method reads the files as they are now."""

    def __init__(self, control: Control, engines: Engines, runs: Runs) -> None:
        self._control = control
        self._store = control.profiles
        self._engines = engines
        self._runs = runs
        self._asked: dict[str | None, tuple[float, asyncio.Task[EngineEnvironment | None]]] = {}
        self._known: dict[str | None, tuple[float, _Engine]] = {}
        self._n_changes = 0  # of the engines
        engines.on_changed(self._forget_engines)

    async def close(self) -> None:
        """Give up the questions to engines that nobody waits for any more; returns when their processes have ended."""
        tasks = [task for _, task in self._asked.values()]
        self._forget_engines()
        if tasks:
            await asyncio.wait(tasks)

    def _forget_engines(self) -> None:
        """Other engines may serve now: what is known, or asked, of the old ones is void."""
        self._n_changes += 1
        self._known.clear()
        for _, task in self._asked.values():
            task.cancel()
        self._asked.clear()

    # ---- looking ---------------------------------------------------------------------------------------------

    async def list(self) -> tuple[ProfileEntry, ...]:
        """Return every profile, the person's own first."""
        entries = [_entry(stored) for stored in await asyncio.to_thread(self._store.list)]
        titles = Counter(entry.title for entry in entries)  # a copy has the title of what it was copied from
        return tuple(
            replace(entry, subtitle=f"{entry.name} \N{MIDDLE DOT} {entry.subtitle}")
            if titles[entry.title] > 1 and entry.title != entry.name
            else entry
            for entry in entries
        )

    async def default(self) -> str:
        """Return the name of the profile that opens first: the shipped demo that pays best."""
        return (await asyncio.to_thread(self._control.default_demo)).name

    async def free_name(self, wish: str) -> str:
        """Return a name that is still free: `wish`, or with a number behind it."""
        return await asyncio.to_thread(self._store.free_name, wish)

    async def form(self, name: str) -> ProfileForm:
        """Return a profile laid out for editing; a damaged one has its problem and no values.

        Raises:
            UsageError: there is no profile of that name.
        """
        stored = await asyncio.to_thread(self._store.find, name)
        engine = await self._engine(stored.profile.engine.environment if stored.profile else None)
        return await asyncio.to_thread(self._form, stored, engine)

    def _form(self, stored: StoredProfile, engine: _Engine) -> ProfileForm:
        probe = engine.environment.probe if engine.environment else None
        known = [one.profile for one in self._store.list() if one.profile is not None]
        fields = profile_fields.specs(
            probe,
            environments=[environment.id for environment in environments.list_environments()],
            models=sorted({profile.target.model for profile in known}),
            drafts=sorted({profile.speculation.model for profile in known if profile.speculation.model}),
        )
        profile = stored.profile
        return ProfileForm(
            name=stored.name,
            read_only=stored.read_only,
            fields=fields,
            values=_values(profile) if profile else {},
            problem=f"The file {stored.path} cannot be used. {stored.problem}" if profile is None else "",
            platform=probe.platform if probe else "",
        )

    # ---- checking --------------------------------------------------------------------------------------------

    async def check(self, name: str, values: Mapping[str, str]) -> ProfileCheck:
        """Check a draft and say what it amounts to; never raises for what a person typed, asks nothing of the net.

        Raises:
            UsageError: there is no profile of that name.
        """
        profile, problems = await asyncio.to_thread(self._read, name, values)
        if profile is None:
            return ProfileCheck(problems, command_note="Mend what is marked to see the exact command.")
        engine = await self._engine(profile.engine.environment)
        run = self._runs.view()
        url = run.url if run.is_live else ""
        return await asyncio.to_thread(self._judge, profile, engine, url, is_running=run.profile == name)

    def _read(self, name: str, values: Mapping[str, str]) -> tuple[Profile | None, dict[str, str]]:
        return profile_text.read(self._store.find(name).profile, name, values)

    def _judge(self, profile: Profile, engine: _Engine, running_url: str, *, is_running: bool) -> ProfileCheck:
        found = [engine.problem] if engine.problem else []
        shown, note = "", engine.why
        environment = engine.environment
        if environment is not None and environment.probe is not None:
            probe = environment.probe
            found += command.check(profile, environment)
            try:
                shown = command.preview(profile, environment)
                note = f"For {probe.distribution} {probe.version}"
                says_it = environment.id == f"{probe.distribution}-{probe.version}"
                note += "." if says_it else f" in the environment {environment.id}."
            except UserError:  # the findings say why
                note = "Mend the errors above to see the exact command."
        found += profile_findings.asked_before_a_start(profile)
        found += profile_findings.port(
            profile, running_url=running_url, is_running=is_running, live_runs=self._control.live_runs
        )
        found += profile_findings.models(profile, self._control.missing_models)
        placed = sorted(map(profile_findings.placed, found), key=lambda one: _ORDER.index(one[0].severity))
        return ProfileCheck(
            problems={},
            findings=tuple(finding for finding, _ in placed),
            places=tuple(place for _, place in placed),
            command=shown,
            command_note=note,
            pending=engine.pending,
        )

    async def _engine(self, environment_id: str | None) -> _Engine:
        """Return the engine that would serve, without waiting for one that must be asked first, and adding none."""
        until_s, known = self._known.get(environment_id, (0.0, _Engine()))
        if time.monotonic() < until_s:
            return known
        asked_s, task = self._asked.get(environment_id, (0.0, None))
        if task is None or task.cancelled():
            serving = self._engines.serving(environment_id, add_found=False)
            asked_s, task = time.monotonic(), asyncio.create_task(serving)
            self._asked[environment_id] = asked_s, task
        n_changes = self._n_changes
        await asyncio.wait({task}, timeout=_PATIENCE_S)
        if not task.done() or task.cancelled() or n_changes != self._n_changes:
            return _Engine(why=_ASKING, pending=True)
        self._asked.pop(environment_id, None)
        try:
            found = _Engine(task.result())
        except UserError as error:
            problem = Finding(Severity.ERROR, error.message, fix=error.what_to_do)
            found = _Engine(why="There is no engine to show the exact command for.", problem=problem)
        now_s = time.monotonic()
        keep_s = _KEEP_ENGINE_S if found.environment else _KEEP_ENGINE_S + _KEEP_RATIO * (now_s - asked_s)
        self._known[environment_id] = now_s + keep_s, found
        return found

    # ---- changing --------------------------------------------------------------------------------------------

    async def save(self, name: str, values: Mapping[str, str]) -> ProfileForm:
        """Write a draft among the person's own profiles; comments and what a form does not show stay.

        Raises:
            UserError: the draft has problems, or the profile is a preset, damaged, or gone.
        """
        await asyncio.to_thread(self._save, name, name, values)
        await self._runs.profile_changed(name)
        return await self.form(name)

    async def save_copy(self, name: str, new_name: str, values: Mapping[str, str]) -> ProfileForm:
        """Write a draft of any profile as a new one of the person's own, with the comments of the first.

        Raises:
            UserError: the draft has problems, or the new name is taken or no good name.
        """
        await asyncio.to_thread(self._save, name, new_name, values)
        return await self.form(new_name)

    def _save(self, name: str, new_name: str, values: Mapping[str, str]) -> None:
        stored = self._store.find(name)
        if stored.profile is None:
            raise ProfileError(f"The profile {stored.path} cannot be used: {stored.problem}")
        profile, problems = profile_text.read(stored.profile, new_name, values)
        if profile is None:
            path, words = next(iter(problems.items()))
            raise ProfileError(f"The profile was not saved: {profile_findings.title(path)} {words}.")
        if new_name != name:
            self._store.copy(name, new_name)
        self._store.save(profile)

    async def new(self, name: str) -> ProfileForm:
        """Make a new profile of the person's own that runs the demo's target model and says nothing else.

        Raises:
            ProfileError: the name is taken or no good name.
        """
        await asyncio.to_thread(self._new, name)
        return await self.form(name)

    def _new(self, name: str) -> None:
        if any(stored.name == name for stored in self._store.list()):
            raise ProfileError(f"There is already a profile named {name}.", "Choose another name.")
        model = self._control.default_demo().target.model
        # The store checks the name; pydantic would say the same less well.
        self._store.save(Profile.model_construct(name=name, target=Target(model=model)))

    async def duplicate(self, name: str, new_name: str) -> ProfileForm:
        """Copy a profile, comments included, to one of the person's own.

        Raises:
            UserError: the profile is damaged or gone, or the new name is taken or no good name.
        """
        await asyncio.to_thread(self._store.copy, name, new_name)
        return await self.form(new_name)

    async def rename(self, name: str, new_name: str) -> None:
        """Give one of the person's own profiles another name.

        Raises:
            UserError: it is a preset or runs, or the new name is taken or no good name.
        """
        self._refuse_running(name)
        await asyncio.to_thread(self._store.rename, name, new_name)

    async def delete(self, name: str) -> str:
        """Delete one of the person's own profiles; returns what `restore` takes to bring it back.

        Raises:
            UserError: it is a preset, runs, or is gone.
        """
        self._refuse_running(name)
        return await asyncio.to_thread(self._store.put_away, name)

    async def restore(self, token: str) -> str:
        """Bring back a deleted profile; returns its name.

        Raises:
            ProfileError: it is gone for good, or its name is taken by now.
        """
        return await asyncio.to_thread(self._store.bring_back, token)

    def _refuse_running(self, name: str) -> None:
        run = self._runs.view()
        if run.is_live and run.profile == name:
            raise ProfileError(f"{name} is running.", "Stop its engine first.")


_ORDER: builtins.list[Severity] = [Severity.ERROR, Severity.WARNING, Severity.NOTE]


def _values(profile: Profile) -> dict[str, str]:
    return {field.path: profile_text.to_text(field.path, field.value(profile)) for field in profile_text.EDITABLE}


def _entry(stored: StoredProfile) -> ProfileEntry:
    profile = stored.profile
    if profile is None:
        return ProfileEntry(stored.name, stored.name, "damaged file", stored.read_only, stored.problem)
    return ProfileEntry(stored.name, profile.shown_title, _subtitle(profile), stored.read_only)


def _subtitle(profile: Profile) -> str:
    spec = profile.speculation
    if not spec.on:
        words = ["no speculation"]
    else:
        words = [_METHODS.get(spec.method, spec.method.replace("_", " ")) if spec.method else "draft by its kind"]
        if spec.num_speculative_tokens is not None:
            words.append(f"{spec.num_speculative_tokens} token{'' if spec.num_speculative_tokens == 1 else 's'}")
    if (devices := profile.parallel.tensor_parallel_size or 1) > 1:
        words.append(f"TP {devices}")
    return ", ".join(words)
