"""Size of the state that a layer of Mamba, linear attention or a short convolution keeps of each sequence."""

from collections.abc import Callable

from backend.checkpoints.json_files import Fields

_FLOAT_BYTES = {"float32": 4.0, "float": 4.0, "bfloat16": 2.0, "float16": 2.0}


def state_bytes(config: Fields, dtype_bytes: float) -> float | None:
    """Return the bytes of one layer's state: the convolution's last inputs, and the recurrent state.

    Args:
        config: the language model's fields.
        dtype_bytes: size of the model's numbers, which states have unless the config says otherwise.

    Returns:
        bytes for one sequence on one GPU, None for a way that is not known here.

    Raises:
        ModelError: a count is no count.
    """
    recurrent = _FLOAT_BYTES.get(config.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype") or "")
    for rule in _STATES:
        elements = rule(config)
        if elements is not None:
            convolution, state, default = elements
            return convolution * dtype_bytes + state * (recurrent or default or dtype_bytes)
    return None


_Elements = tuple[int, int, float | None]
"""Elements of the convolution and of the state, and the size of the state's numbers where it is fixed."""


def _gated_delta(config: Fields) -> _Elements | None:
    heads = config.count("linear_num_value_heads")
    keys = (config.count("linear_num_key_heads") or 0) * (config.count("linear_key_head_dim") or 0)
    size = config.count("linear_value_head_dim")
    if not heads or not keys or not size:
        return None
    kernel = config.count("linear_conv_kernel_dim") or 4
    return (kernel - 1) * (2 * keys + heads * size), heads * size * (config.count("linear_key_head_dim") or 0), None


def _kimi(config: Fields) -> _Elements | None:
    nested = config.fields("linear_attn_config")
    heads, size = (nested.count("num_heads"), nested.count("head_dim")) if nested else (None, None)
    if not nested or not heads or not size:
        return None
    kernel = nested.count("short_conv_kernel_size") or 4
    return (kernel - 1) * 3 * heads * size, heads * size * size, 4.0


def _mamba2(config: Fields) -> _Elements | None:
    names = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads")
    heads = config.count(*names, *(("num_heads",) if config.text("model_type") == "mamba2" else ()))
    size = config.count("mamba_d_head", "mamba_head_dim", "mamba_headdim") or (heads and config.count("head_dim"))
    state = config.count("mamba_d_state", "ssm_state_size", "state_size")
    if not heads or not size or not state:
        return None
    groups = config.count("mamba_n_groups", "n_groups", "mamba_ngroups") or 1
    kernel = config.count("mamba_d_conv", "conv_kernel", "mamba_conv_kernel") or 4
    return (kernel - 1) * (heads * size + 2 * groups * state), heads * size * state, None


def _mamba1(config: Fields) -> _Elements | None:
    state = config.count("mamba_d_state", "state_size")
    expand = config.number("mamba_expand", "expand")
    hidden = config.count("hidden_size", "d_model")
    if not state or not expand or not hidden:
        return None
    inner = int(expand * hidden)
    return ((config.count("mamba_d_conv", "conv_kernel") or 4) - 1) * inner, inner * state, None


def _short_convolution(config: Fields) -> _Elements | None:
    kernel, hidden = config.count("conv_L_cache"), config.count("conv_dim", "hidden_size")
    return ((kernel - 1) * hidden, 0, None) if kernel and hidden else None


def _lightning(config: Fields) -> _Elements | None:
    heads, size = config.count("num_attention_heads"), config.count("head_dim")
    return (0, heads * size * size, None) if "attn_type_list" in config and heads and size else None


_STATES: tuple[Callable[[Fields], _Elements | None], ...] = (
    _gated_delta, _kimi, _mamba2, _mamba1, _short_convolution, _lightning,
)  # fmt: skip
