"""Where a model's files are: built by us, in a folder, or in the Hugging Face cache; and how large it is on the hub."""

import contextlib
import json
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx2
import huggingface_hub
from huggingface_hub import constants, errors

from backend.errors import ModelError

BUILT_PREFIX = "specdeck://"  # before the names of the models that Specdeck builds itself

_INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json", "pytorch_model.bin.index.json")
_CONFIGS = ("config.json", "params.json")
_WEIGHT_ENDINGS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")  # in the order in which they are preferred
_CONFIG_ENDINGS = (".json", ".jinja", ".txt", ".model", ".py")
_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<ending>\.\w+)")
# Not a model: training state that some repositories keep beside it.
_NO_WEIGHTS = re.compile(r"(training_args|optimizer|scheduler|rng_state.*|scaler)\.(bin|pt|pth)")


class HubOfflineError(ModelError):
    """The hub cannot be reached, or the machine is told to stay offline."""


class HubTokenError(ModelError):
    """The hub wants a token, or a better one."""


class HubLicenceError(ModelError):
    """The model's licence must be accepted on its page first."""


class HubUnknownError(ModelError):
    """The hub has no such model or revision, or hides it from this account."""


class ModelState(StrEnum):
    """COMPLETE can be loaded without a download; PARTIAL has some of its files; MISSING has none."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """What is on disk of one model.

    Attributes:
        model: the name that was asked for.
        state: COMPLETE, PARTIAL or MISSING.
        path: folder to load it from, None while there is none.
        present_bytes: bytes on disk, unfinished downloads included.
        missing: names of files that are absent or cut short, as far as they are known.
    """

    model: str
    state: ModelState
    path: Path | None
    present_bytes: int
    missing: tuple[str, ...] = ()


def is_built(model: str) -> bool:
    """Say whether a model's name means one that Specdeck builds: `specdeck://NAME`."""
    return model.startswith(BUILT_PREFIX)


def is_path(model: str) -> bool:
    """Say whether a model's name means a folder of this machine: `/x`, `./x`, `../x` or `~/x`."""
    return model.startswith(("/", "./", "../", "~"))


def is_hub_name(model: str) -> bool:
    """Say whether a model's name means the hub: neither a path nor built by Specdeck."""
    return not is_built(model) and not is_path(model)


def folder_of(model: str) -> Path:
    """Return the folder that a model's path means; `~` is the home folder."""
    return Path(os.path.expanduser(model))  # Path's own method raises for a user who does not exist


def locate(model: str, *, revision: str | None = None, built: Path, hub_cache: Path | None = None) -> ModelFiles:
    """Find a model's files without asking the network.

    Args:
        model: `specdeck://NAME`, a path, or a hub name like `owner/name`. A relative path must begin with
            `./`, since an engine runs in another folder and would read `a/b` as a hub name.
        revision: branch, tag or commit; only for hub names.
        built: folder of the models that Specdeck builds.
        hub_cache: the hub's cache, by default where `HF_HUB_CACHE` and `HF_HOME` say.

    Raises:
        ModelError: the name is neither a path nor a possible hub name.
    """
    if is_built(model):
        name = model.removeprefix(BUILT_PREFIX)
        if name in {"", ".."} or Path(name).name != name:
            raise ModelError(f"{model} is not a model name.", f"Write {BUILT_PREFIX} and one plain name.")
        return _in_folder(model, built / name)
    if is_path(model):
        return _in_folder(model, folder_of(model))
    _check_name(model)
    return _in_cache(model, revision, hub_cache or Path(constants.HF_HUB_CACHE))


def hub_size(model: str, revision: str | None = None, *, timeout_s: float, endpoint: str | None = None) -> int:
    """Ask the hub how many bytes an engine would fetch: weights (one format only), config and tokenizer.

    Args:
        model: hub name like `owner/name`.
        revision: branch, tag or commit, None for the main branch.
        timeout_s: limit for each network operation.
        endpoint: the hub's address, by default what `HF_ENDPOINT` says.

    Raises:
        HubOfflineError: no answer.
        HubTokenError: a token is needed or the one used is not valid.
        HubLicenceError: the licence was not accepted yet.
        HubUnknownError: no such model or revision.
        ModelError: any other refusal of the hub.
    """
    with hub_answers(model, revision):
        api = huggingface_hub.HfApi(endpoint=endpoint)
        info = api.model_info(model, revision=revision, files_metadata=True, timeout=timeout_s)
        if info.gated:
            # The list of files is public even then; only a file itself says whether it may be fetched.
            # (`HfApi.auth_check` asks too, but without a time limit.)
            url = huggingface_hub.hf_hub_url(model, _CONFIGS[0], revision=revision, endpoint=endpoint)
            with contextlib.suppress(errors.EntryNotFoundError):
                huggingface_hub.get_hf_file_metadata(url, timeout=timeout_s, endpoint=endpoint)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    return sum(sizes[name] for name in _fetched(tuple(sizes)))


@contextlib.contextmanager
def hub_answers(model: str, revision: str | None) -> Iterator[None]:
    """Ask the hub about a model in this block: what its library raises is turned into words.

    Raises:
        HubOfflineError: no answer.
        HubTokenError: a token is needed or the one used is not valid.
        HubLicenceError: the licence was not accepted yet.
        HubUnknownError: no such model or revision.
        ModelError: the name is impossible, or the hub refuses for another reason.
    """
    _check_name(model)
    try:
        yield
    except (errors.OfflineModeIsEnabled, httpx2.TransportError) as error:
        raise HubOfflineError(
            f"{model} cannot be looked up: the Hugging Face hub does not answer ({_brief(error)}).",
            "Check the network and HF_HUB_OFFLINE, or choose a model that is on disk.",
        ) from error
    except errors.HfHubHTTPError as error:
        raise _explain(model, revision, error) from error
    finally:
        huggingface_hub.close_session()  # else its pool keeps sockets open for the rest of the process


def fetched_weights(names: Sequence[str]) -> list[str]:
    """Return the weight files that an engine would choose among these files of a repository."""
    return [name for name in _fetched(names) if name.endswith(_WEIGHT_ENDINGS)]


def _check_name(model: str) -> None:
    try:
        huggingface_hub.hf_hub_url(model, _CONFIGS[0])  # checks the name, asks nobody
    except errors.HFValidationError as error:
        raise ModelError(
            f"{model} is neither a folder nor a model name of the Hugging Face hub.",
            "Write owner/name, or a path that begins with / or ./",
        ) from error


def _brief(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def _explain(model: str, revision: str | None, error: errors.HfHubHTTPError) -> ModelError:
    """Turn the hub's refusal into words; it says 401 for a missing token and for an unknown model alike."""
    status = error.response.status_code
    login = "Log in with `hf auth login`, or set HF_TOKEN to a token that may read it."
    if isinstance(error, errors.RevisionNotFoundError):
        return HubUnknownError(f"{model} has no revision {revision} on the hub.", "Check the revision's name.")
    if isinstance(error, errors.GatedRepoError) and status != httpx2.codes.UNAUTHORIZED:
        return HubLicenceError(
            f"{model} can be fetched only after its licence is accepted.",
            f"Open the page of {model} on the hub, accept the licence with your account, then try again.",
        )
    if isinstance(error, errors.GatedRepoError):
        return HubTokenError(f"{model} has a licence to accept, so the hub wants a token.", login)
    if status == httpx2.codes.UNAUTHORIZED:
        return HubTokenError(
            f"The hub does not show {model} without a valid token: it is private, or there is no such model.",
            f"Check the name. {login}",
        )
    if status == httpx2.codes.FORBIDDEN:
        return HubTokenError(f"The token that is set up may not read {model}.", login)
    if status == httpx2.codes.NOT_FOUND:
        return HubUnknownError(f"The hub has no model {model}.", "Check the name's spelling, case included.")
    return ModelError(f"The hub refused to describe {model} (HTTP {status}).", "Try again later.")


def _fetched(names: Sequence[str]) -> Iterator[str]:
    """Yield the files an engine loads: configs, and the weights in the best format there is.

    Weights in subfolders (`original/`, `onnx/`) are copies in other formats.
    """
    top = [name for name in names if "/" not in name and not _NO_WEIGHTS.fullmatch(name)]
    for ending in _WEIGHT_ENDINGS:
        weights = [name for name in top if name.endswith(ending)]
        if weights:
            # Mistral's repositories hold everything twice: for transformers, and as consolidated*.
            plain = [name for name in weights if not name.startswith("consolidated")]
            yield from plain or weights
            break
    yield from (name for name in top if name.endswith(_CONFIG_ENDINGS) and not name.endswith(_WEIGHT_ENDINGS))


def _in_folder(model: str, folder: Path) -> ModelFiles:
    if not folder.is_dir():
        return ModelFiles(model, ModelState.MISSING, None, 0)
    missing = tuple(_missing(folder))
    present = _bytes_below(folder)
    if not missing:
        return ModelFiles(model, ModelState.COMPLETE, folder, present)
    return ModelFiles(model, ModelState.PARTIAL if present else ModelState.MISSING, folder, present, missing)


def _in_cache(model: str, revision: str | None, cache: Path) -> ModelFiles:
    from huggingface_hub.file_download import repo_folder_name  # takes 0.1 s to load, and a window waits for its start

    repository = cache / repo_folder_name(repo_id=model, repo_type="model")
    if not repository.is_dir():
        return ModelFiles(model, ModelState.MISSING, None, 0)
    snapshot: Path | None = None
    for name in (*_CONFIGS, *_INDEXES, "model.safetensors"):
        found = huggingface_hub.try_to_load_from_cache(model, name, cache_dir=cache, revision=revision)
        if isinstance(found, str):
            snapshot = Path(found).parent
            break
    if snapshot:
        here = _in_folder(model, snapshot)
        if here.state is ModelState.COMPLETE:
            return here
    # Files of other revisions lie in the same place, so only what is unfinished is added to the snapshot's own.
    unfinished = sum(_size(blob) for blob in (repository / "blobs").glob("*.incomplete"))
    present = (_bytes_below(snapshot) if snapshot else 0) + unfinished
    missing = tuple(_missing(snapshot)) if snapshot else (_CONFIGS[0],)
    state = ModelState.PARTIAL if snapshot or unfinished else ModelState.MISSING
    return ModelFiles(model, state, snapshot, present, missing)


def _missing(folder: Path) -> Iterator[str]:
    """Yield the files without which the model cannot be loaded: a config, and every weight file, whole."""
    if not any((folder / name).is_file() for name in _CONFIGS):
        yield _CONFIGS[0]
    wanted: set[str] = set()
    for name in _INDEXES:
        shards = _indexed(folder / name)
        if shards:
            wanted = shards
            break
    else:
        present = [path.name for path in folder.iterdir() if path.is_file()]
        # Only the weights count here, and of these the format an engine would choose.
        weights = [name for name in _fetched(present) if name.endswith(_WEIGHT_ENDINGS)]
        wanted = {shard for name in weights for shard in _siblings(name)} or {"model.safetensors"}
    yield from sorted(name for name in wanted if not _whole(folder / name))


def _indexed(index: Path) -> set[str]:
    """Return the weight files that an index names; empty when there is no readable index."""
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
        return {str(name) for name in content["weight_map"].values()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return set()


def _siblings(name: str) -> Iterator[str]:
    """Yield all files of the set that a shard like `model-00001-of-00004.safetensors` belongs to."""
    match = _SHARD.fullmatch(name)
    if not match:
        yield name
        return
    for number in range(1, int(match["count"]) + 1):
        yield f"{match['stem']}-{number:05}-of-{match['count']}{match['ending']}"


def _whole(path: Path) -> bool:
    """Say whether a weight file is there and, for safetensors, as long as its header says."""
    size = _size(path)
    if path.suffix != ".safetensors":
        return size > 0
    try:
        with path.open("rb") as file:
            (header_bytes,) = struct.unpack("<Q", file.read(8))
            if header_bytes > size:
                return False
            header = json.loads(file.read(header_bytes))
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    except (OSError, ValueError, LookupError, AttributeError, TypeError, struct.error):
        return False
    return size == 8 + int(header_bytes) + max(ends, default=0)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _bytes_below(folder: Path) -> int:
    return sum(_size(path) for path in folder.rglob("*") if path.is_file())
