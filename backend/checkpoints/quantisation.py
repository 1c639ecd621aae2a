"""How the weights of a checkpoint are quantised, from the many ways in which configs say it."""

import re
from dataclasses import dataclass

from backend.checkpoints.json_files import Fields

_BITS = {"fp8": 8, "fbgemm_fp8": 8, "ptpc_fp8": 8, "experts_int8": 8, "mxfp4": 4, "nvfp4": 4, "awq": 4}
_KV_BYTES = {"fp8": 1.0, "nvfp4": 0.5 + 1 / 16}  # NVFP4 keeps one scale byte for 16 values


@dataclass(frozen=True, slots=True)
class Quantisation:
    """How weights are quantised.

    Attributes:
        method: vLLM's name of the method ("fp8", "gptq", "awq", "compressed-tensors", "modelopt", "mxfp4" ...).
        scheme: what the method calls its format ("nvfp4-pack-quantized", "NVFP4"), "" if it has one only.
        bits: of a weight; of several groups the fewest. None if not told.
        group_size: weights that share a scale, None for whole rows or tensors.
        block_shape: rows and columns that share a scale.
        kv_cache: type of the KV cache that the checkpoint asks for ("fp8", "nvfp4"), "" for the model's own.
        ignored: names or patterns of the modules that are left as they are.
    """

    method: str
    scheme: str = ""
    bits: int | None = None
    group_size: int | None = None
    block_shape: tuple[int, ...] = ()
    kv_cache: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def kv_cache_bytes(self) -> float | None:
        """Bytes of one number in the KV cache that the checkpoint asks for, None if it asks for none."""
        return _KV_BYTES.get(self.kv_cache)


def read_quantisation(config: Fields, separate: Fields | None) -> Quantisation | None:
    """Return how a checkpoint is quantised, None if it is not.

    Args:
        config: fields of `config.json`.
        separate: fields of `hf_quant_config.json`, where older checkpoints of NVIDIA keep it.

    Raises:
        ModelError: a number in it is damaged.
    """
    fields = config.fields("quantization_config", "compression_config") or separate
    if fields is None:
        return None
    inner = fields.fields("quantization")
    if inner:  # NVIDIA's: everything is one level deeper
        fields = inner.over(fields)
    method = (fields.text("quant_method") or "").lower().replace("_tensors", "-tensors")
    algorithm = fields.text("quant_algo") or ""
    if not method:
        if not algorithm:
            return None
        method = "modelopt_fp4" if "FP4" in algorithm.upper() else "modelopt"
    if method == "compressed-tensors":
        return _compressed(fields)
    bits = fields.count("bits", "w_bit", "weight_bits", "num_bits") or _bits(method, algorithm, fields)
    default_group = {"NVFP4": 16}.get(algorithm.upper(), 32 if method == "mxfp4" else None)
    return Quantisation(
        method, algorithm, bits, _group(fields, "group_size", "q_group_size") or default_group,
        fields.counts("weight_block_size"), _kv_cache(fields),
        fields.texts("modules_to_not_convert", "ignored_layers", "exclude_modules", "ignore"),
    )  # fmt: skip


def _bits(method: str, algorithm: str, fields: Fields) -> int | None:
    if method == "bitsandbytes":
        return 4 if fields.flag("load_in_4bit") or fields.flag("_load_in_4bit") else 8
    name = algorithm.upper()
    if name:
        return 4 if "FP4" in name or name.startswith("W4") else 8 if "8" in name else None
    return _BITS.get(method)


def _compressed(fields: Fields) -> Quantisation:
    """Read llm-compressor's way: groups of layers, each with its own scheme; the smallest weights are told."""
    groups = fields.fields("config_groups")
    found: list[Fields] = []
    for name in groups.names() if groups else ():
        group = groups.fields(name) if groups else None
        weights = group.fields("weights") if group else None
        if weights:
            found.append(weights)
    weights = min(found, key=lambda one: one.count("num_bits") or 1000, default=Fields({}, "config.json"))
    block = weights.value("block_structure")
    shape = weights.counts("block_structure") if isinstance(block, list) else ()
    if isinstance(block, str) and re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6})*", block):
        shape = tuple(int(side) for side in block.split("x"))
    return Quantisation(
        "compressed-tensors", fields.text("format") or "", weights.count("num_bits"), _group(weights, "group_size"),
        shape, _kv_cache(fields), fields.texts("ignore"),
    )  # fmt: skip


def _group(fields: Fields, *names: str) -> int | None:
    """Return the group size; -1, 0 and none all mean that a whole row shares its scale."""
    return next((fields.count(name) or None for name in names if fields.value(name) not in (None, -1, 0)), None)


def _kv_cache(fields: Fields) -> str:
    scheme = fields.fields("kv_cache_scheme")
    if scheme:
        bits, kind = scheme.count("num_bits"), scheme.text("type")
        return {(8, "float"): "fp8", (4, "float"): "nvfp4"}.get((bits or 0, kind or ""), "")
    name = (fields.text("kv_cache_quant_algo", "kv_cache_scheme") or "").lower()
    return next((known for known in _KV_BYTES if name.startswith(known)), "")
