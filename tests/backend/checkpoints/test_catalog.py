"""What is on disk of a model, and what the hub says about one."""

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.checkpoints import catalog
from backend.checkpoints.catalog import ModelState
from backend.errors import ModelError
from tests.fakes.fake_hub import COMMIT, FakeHub, HubModel, serve_hub

CONFIG = "{}"


def safetensors(path: Path, payload: int, *, cut: int = 0) -> int:
    """Write a safetensors file with `payload` data bytes, less `cut`; return its size."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [payload], "data_offsets": [0, payload]}}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * (payload - cut))
    return path.stat().st_size


def sharded(folder: Path, shards: dict[str, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(CONFIG)
    weight_map = {f"layer.{number}": name for number, name in enumerate(shards)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    for name, payload in shards.items():
        safetensors(folder / name, payload)


def cached(cache: Path, name: str, *, commit: str = COMMIT, branch: str = "main") -> Path:
    """Make an empty repository in a hub cache and return its snapshot folder."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True, exist_ok=True)
    (repository / "refs" / branch).write_text(commit)
    (repository / "blobs").mkdir(exist_ok=True)
    snapshot = repository / "snapshots" / commit
    snapshot.mkdir(parents=True)
    return snapshot


class TestFolders:
    def test_complete(self, tmp_path: Path) -> None:
        size = safetensors(tmp_path / "m" / "model.safetensors", 100)
        (tmp_path / "m" / "config.json").write_text(CONFIG)
        found = catalog.locate(str(tmp_path / "m"), built=tmp_path / "none")
        assert (found.state, found.path, found.missing) == (ModelState.COMPLETE, tmp_path / "m", ())
        assert found.present_bytes == size + len(CONFIG)

    def test_built_by_us(self, tmp_path: Path) -> None:
        safetensors(tmp_path / "tiny" / "model.safetensors", 1)
        (tmp_path / "tiny" / "config.json").write_text(CONFIG)
        found = catalog.locate("specdeck://tiny", built=tmp_path)
        assert (found.state, found.path) == (ModelState.COMPLETE, tmp_path / "tiny")
        assert catalog.locate("specdeck://other", built=tmp_path).state is ModelState.MISSING

    @pytest.mark.parametrize("name", ["specdeck://", "specdeck://a/b", "specdeck://..", "a b", "a/b/c", "", "."])
    def test_impossible_name(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ModelError):
            catalog.locate(name, built=tmp_path)

    def test_home_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        safetensors(tmp_path / "m" / "model.safetensors", 1)
        (tmp_path / "m" / "config.json").write_text(CONFIG)
        assert catalog.locate("~/m", built=tmp_path / "none").state is ModelState.COMPLETE

    def test_a_home_folder_of_nobody_is_just_missing(self, tmp_path: Path) -> None:
        assert catalog.locate("~no-such-user/m", built=tmp_path).state is ModelState.MISSING

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            *(
                ("owner/name", "hub"),
                ("name", "hub"),
                ("a~b/c", "hub"),
                ("specdeck/x", "hub"),
                ("owner/.hidden", "hub"),
            ),
            *(("/x", "path"), ("/", "path"), ("./x", "path"), ("../x", "path"), ("~/x", "path"), ("~who/x", "path")),
            *(("specdeck://x", "built"), ("specdeck://", "built")),
        ],
    )
    def test_every_name_is_of_one_kind(self, name: str, kind: str) -> None:
        kinds = {"hub": catalog.is_hub_name, "path": catalog.is_path, "built": catalog.is_built}
        assert [each for each, is_it in kinds.items() if is_it(name)] == [kind]

    def test_missing_folder(self, tmp_path: Path) -> None:
        found = catalog.locate(str(tmp_path / "nowhere"), built=tmp_path)
        assert (found.state, found.path, found.present_bytes) == (ModelState.MISSING, None, 0)

    def test_empty_folder(self, tmp_path: Path) -> None:
        found = catalog.locate(str(tmp_path), built=tmp_path)
        assert found.state is ModelState.MISSING
        assert found.missing == ("config.json", "model.safetensors")

    def test_index_names_an_absent_shard(self, tmp_path: Path) -> None:
        sharded(tmp_path, {"model-00001-of-00002.safetensors": 10, "model-00002-of-00002.safetensors": 20})
        assert catalog.locate(str(tmp_path), built=tmp_path).state is ModelState.COMPLETE
        (tmp_path / "model-00002-of-00002.safetensors").unlink()
        found = catalog.locate(str(tmp_path), built=tmp_path)
        assert (found.state, found.missing) == (ModelState.PARTIAL, ("model-00002-of-00002.safetensors",))

    def test_shard_names_tell_without_an_index(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(CONFIG)
        safetensors(tmp_path / "model-00002-of-00003.safetensors", 10)
        found = catalog.locate(str(tmp_path), built=tmp_path)
        assert found.missing == ("model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors")

    @pytest.mark.parametrize("cut", [1, 10])
    def test_a_short_file_counts_as_missing(self, cut: int, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(CONFIG)
        safetensors(tmp_path / "model.safetensors", 10, cut=cut)
        found = catalog.locate(str(tmp_path), built=tmp_path)
        assert (found.state, found.missing) == (ModelState.PARTIAL, ("model.safetensors",))

    @pytest.mark.parametrize("content", [b"", b"\x05", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\0{"])
    def test_a_broken_header_counts_as_missing(self, content: bytes, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(CONFIG)
        (tmp_path / "model.safetensors").write_bytes(content)
        assert catalog.locate(str(tmp_path), built=tmp_path).missing == ("model.safetensors",)

    @pytest.mark.parametrize("index", ["not json", "[]", "{}", '{"weight_map": 3}'])
    def test_a_broken_index_is_no_index(self, index: str, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(CONFIG)
        (tmp_path / "model.safetensors.index.json").write_text(index)
        safetensors(tmp_path / "model.safetensors", 10)
        assert catalog.locate(str(tmp_path), built=tmp_path).state is ModelState.COMPLETE

    def test_older_weight_formats(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(CONFIG)
        (tmp_path / "training_args.bin").write_bytes(b"x")
        assert catalog.locate(str(tmp_path), built=tmp_path).missing == ("model.safetensors",)
        (tmp_path / "pytorch_model.bin").write_bytes(b"x")
        assert catalog.locate(str(tmp_path), built=tmp_path).state is ModelState.COMPLETE


class TestCache:
    def test_complete(self, tmp_path: Path) -> None:
        snapshot = cached(tmp_path, "o/m")
        (snapshot / "config.json").write_text(CONFIG)
        blob = snapshot.parents[1] / "blobs" / "abc"
        size = safetensors(blob, 50)
        (snapshot / "model.safetensors").symlink_to(blob)
        found = catalog.locate("o/m", built=tmp_path, hub_cache=tmp_path)
        assert (found.state, found.path) == (ModelState.COMPLETE, snapshot)
        assert found.present_bytes == size + len(CONFIG)

    def test_nothing_there(self, tmp_path: Path) -> None:
        found = catalog.locate("o/m", built=tmp_path, hub_cache=tmp_path)
        assert (found.state, found.path, found.present_bytes) == (ModelState.MISSING, None, 0)

    def test_unfinished_download(self, tmp_path: Path) -> None:
        snapshot = cached(tmp_path, "o/m")
        sharded(snapshot, {"model-00001-of-00002.safetensors": 10, "model-00002-of-00002.safetensors": 10})
        (snapshot / "model-00002-of-00002.safetensors").unlink()
        before = sum(path.stat().st_size for path in snapshot.iterdir())
        (snapshot.parents[1] / "blobs" / "abc.incomplete").write_bytes(b"x" * 7)
        found = catalog.locate("o/m", built=tmp_path, hub_cache=tmp_path)
        assert (found.state, found.missing) == (ModelState.PARTIAL, ("model-00002-of-00002.safetensors",))
        assert found.present_bytes == before + 7

    def test_only_the_first_bytes(self, tmp_path: Path) -> None:
        snapshot = cached(tmp_path, "o/m")
        (snapshot.parents[1] / "blobs" / "abc.incomplete").write_bytes(b"x" * 7)
        found = catalog.locate("o/m", built=tmp_path, hub_cache=tmp_path)
        assert (found.state, found.path, found.present_bytes) == (ModelState.PARTIAL, None, 7)

    def test_a_dead_link_counts_as_missing(self, tmp_path: Path) -> None:
        snapshot = cached(tmp_path, "o/m")
        (snapshot / "config.json").write_text(CONFIG)
        (snapshot / "model.safetensors").symlink_to(snapshot / "gone")
        found = catalog.locate("o/m", built=tmp_path, hub_cache=tmp_path)
        assert (found.state, found.missing) == (ModelState.PARTIAL, ("model.safetensors",))

    def test_revisions_are_told_apart(self, tmp_path: Path) -> None:
        other = "f" * 40
        for commit, branch in ((COMMIT, "main"), (other, "v2")):
            snapshot = cached(tmp_path, "o/m", commit=commit, branch=branch)
            (snapshot / "config.json").write_text(CONFIG)
        safetensors(snapshot / "model.safetensors", 1)
        assert catalog.locate("o/m", built=tmp_path, hub_cache=tmp_path).state is ModelState.PARTIAL
        for revision in ("v2", other):
            found = catalog.locate("o/m", revision=revision, built=tmp_path, hub_cache=tmp_path)
            assert (found.state, found.path) == (ModelState.COMPLETE, snapshot)

    def test_hf_home_is_honoured(self, tmp_path: Path) -> None:
        snapshot = cached(tmp_path / "hub", "o/m")
        (snapshot / "config.json").write_text(CONFIG)
        safetensors(snapshot / "model.safetensors", 1)
        code = (
            "from pathlib import Path\nfrom backend.checkpoints import catalog\n"
            "print(catalog.locate('o/m', built=Path('/')).path)"
        )
        env = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        env |= {"HF_HOME": str(tmp_path)}
        result = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True)
        assert result.stdout.strip() == str(snapshot)


LLAMA = {
    "config.json": 1,
    "tokenizer.json": 2,
    "model.safetensors.index.json": 4,
    "model-00001-of-00002.safetensors": 1000,
    "model-00002-of-00002.safetensors": 2000,
    "original/consolidated.00.pth": 100_000,
    "pytorch_model.bin": 100_000,
    "README.md": 100_000,
    "USE_POLICY.pdf": 100_000,
}


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_STORED_TOKENS_PATH", str(tmp_path / "no-tokens"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    models = {
        "o/llama": HubModel(LLAMA, revisions=("main", "v/2")),
        "o/mistral": HubModel({"config.json": 1, "consolidated.safetensors": 500, "model.safetensors": 600}),
        "o/old": HubModel({"config.json": 1, "pytorch_model.bin": 300, "optimizer.pt": 9000, "model.onnx": 9000}),
        "o/gated": HubModel(LLAMA, gated=True),
        "o/accepted": HubModel(LLAMA, gated=True, accepted=True),
        "o/accepted-params": HubModel({"params.json": 3, "consolidated.safetensors": 5}, gated=True, accepted=True),
        "o/private": HubModel(LLAMA, token="right"),
    }
    with serve_hub(models) as running:
        yield running


def size(hub: FakeHub, model: str, revision: str | None = None) -> int:
    return catalog.hub_size(model, revision, timeout_s=20, endpoint=hub.url)


class TestHub:
    def test_safetensors_only(self, hub: FakeHub) -> None:
        assert size(hub, "o/llama") == 1 + 2 + 4 + 1000 + 2000

    def test_other_formats(self, hub: FakeHub) -> None:
        assert size(hub, "o/mistral") == 601
        assert size(hub, "o/old") == 301
        assert size(hub, "o/accepted-params") == 8

    def test_revision(self, hub: FakeHub) -> None:
        assert size(hub, "o/llama", "v/2") == 3007
        with pytest.raises(catalog.HubUnknownError, match="no revision v3"):
            size(hub, "o/llama", "v3")

    def test_licence(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(catalog.HubTokenError, match="licence"):
            size(hub, "o/gated")
        monkeypatch.setenv("HF_TOKEN", "mine")
        with pytest.raises(catalog.HubLicenceError, match="o/gated"):
            size(hub, "o/gated")
        assert size(hub, "o/accepted") == 3007

    def test_token(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(catalog.HubTokenError):
            size(hub, "o/private")
        monkeypatch.setenv("HF_TOKEN", "right")
        assert size(hub, "o/private") == 3007
        monkeypatch.setenv("HF_TOKEN", "invalid")
        with pytest.raises(catalog.HubTokenError):
            size(hub, "o/private")

    def test_unknown_model(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HF_TOKEN", "mine")
        with pytest.raises(catalog.HubUnknownError, match="o/nothing"):
            size(hub, "o/nothing")

    def test_forbidden(self, hub: FakeHub) -> None:
        hub.status = 403
        with pytest.raises(catalog.HubTokenError):
            size(hub, "o/llama")

    def test_hub_in_trouble(self, hub: FakeHub) -> None:
        hub.status = 503
        with pytest.raises(ModelError, match="503"):
            size(hub, "o/llama")

    def test_nobody_listens(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            with pytest.raises(catalog.HubOfflineError):
                catalog.hub_size("o/llama", timeout_s=20, endpoint=f"http://127.0.0.1:{free.getsockname()[1]}")

    def test_no_answer_in_time(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"http://127.0.0.1:{silent.getsockname()[1]}"
            with pytest.raises(catalog.HubOfflineError):
                catalog.hub_size("o/llama", timeout_s=0.2, endpoint=address)

    def test_told_to_stay_offline(self, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        with pytest.raises(catalog.HubOfflineError):
            size(hub, "o/llama")
        assert hub.asked == []

    def test_a_path_is_not_asked_for(self, hub: FakeHub) -> None:
        with pytest.raises(ModelError):
            size(hub, "/home/me/model")
        assert hub.asked == []
