"""The card of a model on the hub: its small files and the headers of its weights are fetched, no weights."""

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import huggingface_hub
from huggingface_hub import errors
from huggingface_hub.utils import build_hf_headers, hf_raise_for_status  # type: ignore[attr-defined]  # no __all__

from backend.checkpoints import card_cache, catalog
from backend.checkpoints.card import ModelCard
from backend.checkpoints.card_reader import CONFIG_FILES, make_card
from backend.checkpoints.json_files import GET_AGAIN
from backend.checkpoints.tokenizer_fingerprint import TOKENIZER_FILES
from backend.checkpoints.weight_headers import Tensor, check_tensors
from backend.errors import ModelError

_MOST_BYTES = 64 * 2**20
_AT_ONCE = 8


def fetch_card(
    model: str,
    revision: str | None = None,
    *,
    timeout_s: float,
    endpoint: str | None = None,
    cards: Path | None = None,
) -> ModelCard:
    """Fetch what a card of a model on the hub needs: a few megabytes, however large the model is.

    What one commit holds never changes, so its card is kept on disk; only the commit is asked for again.

    Args:
        model: hub name like `owner/name`.
        revision: branch, tag or commit, None for the main branch.
        timeout_s: limit for each network operation.
        endpoint: the hub's address, by default what `HF_ENDPOINT` says.
        cards: folder of the kept cards, by default in the user's cache folder.

    Raises:
        ModelError: the hub does not answer or refuses (as of `catalog.hub_answers`), or a file is damaged.
    """
    with catalog.hub_answers(model, revision):
        api = huggingface_hub.HfApi(endpoint=endpoint)
        info = api.model_info(model, revision=revision, files_metadata=True, timeout=timeout_s)
        source = f"{model}@{info.sha}"
        key = f"{api.endpoint}/{source}"
        kept = card_cache.load_card(key, (), cards=cards)
        if kept:
            return kept
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        names = [name for name in CONFIG_FILES if name in sizes]
        names += [name for name in TOKENIZER_FILES if name in sizes][:1]
        weights = [name for name in catalog.fetched_weights(tuple(sizes)) if name.endswith(".safetensors")]
        with tempfile.TemporaryDirectory(prefix="specdeck-card-") as temporary:
            folder = Path(temporary, model.rpartition("/")[2])  # its name stands in messages
            folder.mkdir()
            for name in names:
                if sizes[name] <= _MOST_BYTES:
                    (folder / name).write_bytes(_content(api, model, name, info.sha, timeout_s))
            fetch = functools.partial(_header, api, model, info.sha, sizes, timeout_s)
            card = make_card(folder, _joined(fetch, weights), source=source)
    card_cache.keep_card(key, (), card, cards=cards)
    return card


def _content(api: huggingface_hub.HfApi, model: str, name: str, commit: str | None, timeout_s: float) -> bytes:
    url = huggingface_hub.hf_hub_url(model, name, revision=commit, endpoint=api.endpoint)
    response = huggingface_hub.get_session().get(url, headers=build_hf_headers(), timeout=timeout_s)
    hf_raise_for_status(response)
    return response.content


def _joined(fetch: Callable[[str], Mapping[str, Tensor]], names: Sequence[str]) -> dict[str, Tensor] | None:
    if not names:
        return None
    tensors: dict[str, Tensor] = {}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="hub-card") as threads:
        for part in threads.map(fetch, names):
            tensors.update(part)
    return tensors


def _header(
    api: huggingface_hub.HfApi, model: str, commit: str | None, sizes: Mapping[str, int], timeout_s: float, name: str
) -> dict[str, Tensor]:
    try:
        header = api.parse_safetensors_file_metadata(model, name, revision=commit, timeout=timeout_s)
        entries = {key: asdict(tensor) for key, tensor in header.tensors.items()}
    # The library takes any JSON for a header, so a broken one can fail in many ways.
    except (
        errors.SafetensorsParsingError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
        MemoryError,
    ) as error:
        raise ModelError(f"{model}/{name} is damaged: its header cannot be read.", GET_AGAIN) from error
    return check_tensors(entries, Path(model, name), data_bytes=sizes[name])
