"""Quantisation, draft heads and caches, from the many ways in which public configs say them."""

import json
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints.card import ModelCard
from backend.checkpoints.card_reader import read_card
from backend.checkpoints.layer_kinds import LayerKind
from backend.checkpoints.weight_parts import Part
from tests.fakes.model_folders import write_model
from tests.fakes.public_models import DEEPSEEK_V3, QWEN3_NEXT, TINY, Shapes, llama

FULL, SLIDING, CHUNKED, STATE, NONE = (
    LayerKind.FULL,
    LayerKind.SLIDING,
    LayerKind.CHUNKED,
    LayerKind.STATE,
    LayerKind.NONE,
)
LOGS = json.loads((Path(__file__).parents[2] / "data" / "kv_cache_logs.json").read_text())
QWEN36_27B = {
    **QWEN3_NEXT, "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4,
    "linear_num_value_heads": 48, "mamba_ssm_dtype": "float32",
}  # fmt: skip


def card_of(folder: Path, config: dict[str, Any], shapes: Shapes | None = None) -> ModelCard:
    return read_card(write_model(folder / "m", config, shapes))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, ("gptq", "", 4, 128, (), None)),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, ("gptq", "", 8, None, (), None)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 128}, ("awq", "", 4, 128, (), None)),
        ({"quant_method": "auto-round", "bits": 4, "group_size": 64}, ("auto-round", "", 4, 64, (), None)),
        ({"quant_method": "fp8", "weight_block_size": [128, 64]}, ("fp8", "", 8, None, (128, 64), None)),
        ({"quant_method": "mxfp4"}, ("mxfp4", "", 4, 32, (), None)),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, ("bitsandbytes", "", 4, None, (), None)),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, ("bitsandbytes", "", 8, None, (), None)),
        ({"quant_method": "new"}, ("new", "", None, None, (), None)),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized",
             "config_groups": {"group_0": {"weights": {"num_bits": 8, "group_size": None, "strategy": "channel"}},
                               "group_1": {"weights": {"num_bits": 4, "group_size": 32}}}},
            ("compressed-tensors", "pack-quantized", 4, 32, (), None),
        ),
        (
            {"quant_method": "compressed-tensors", "format": "float-quantized",
             "config_groups": {"group_0": {"weights": {"num_bits": 8, "block_structure": "128x128"}}},
             "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
            ("compressed-tensors", "float-quantized", 8, None, (128, 128), 1.0),
        ),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}},
            ("modelopt", "NVFP4", 4, 16, (), 1.0),
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, ("modelopt", "FP8", 8, None, (), None)),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 4, "type": "float"}},
            ("modelopt", "NVFP4", 4, 16, (), 0.5625),
        ),
    ],
)  # fmt: skip
def test_quantisation(fields: dict[str, Any], expected: tuple[object, ...], tmp_path: Path) -> None:
    found = card_of(tmp_path, {**TINY, "quantization_config": fields}).quantisation
    assert found is not None
    figures = (found.method, found.scheme, found.bits, found.group_size, found.block_shape, found.kv_cache_bytes)
    assert figures == expected


def test_quantisation_in_a_file_of_its_own(tmp_path: Path) -> None:
    content = {
        "producer": {"name": "modelopt"},
        "quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
                         "exclude_modules": ["lm_head"]},
    }  # fmt: skip
    card = read_card(write_model(tmp_path / "m", TINY, files={"hf_quant_config.json": content}))
    assert card.quantisation is not None
    assert (card.quantisation.method, card.quantisation.bits) == ("modelopt_fp4", 4)
    assert (card.quantisation.kv_cache, card.quantisation.ignored) == ("fp8", ("lm_head",))
    assert card.kv_dtype_bytes == 1
    assert card.kv_bytes_per_token() == 2 * 2 * 32


class TestDraftHeads:
    def test_none(self, tmp_path: Path) -> None:
        assert card_of(tmp_path, TINY, llama(TINY)).draft_head is None

    def test_speculators(self, tmp_path: Path) -> None:
        config = {
            "architectures": ["Eagle3DraftModel"],
            "speculators_model_type": "eagle3",
            "draft_vocab_size": 32,
            "target_hidden_size": 128,
            "eagle_aux_hidden_state_layer_ids": [2, 14, 28],
            "transformer_layer_config": {**TINY, "num_hidden_layers": 1},
            "speculators_config": {
                "algorithm": "eagle3",
                "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
                "verifier": {"name_or_path": "o/target"},
            },
        }
        shapes: Shapes = {
            "d2t": ("I64", (32,)),
            "t2d": ("U8", (320,)),
            "embed_tokens.weight": ("BF16", (320, 64)),
            "fc.weight": ("BF16", (64, 192)),
            "layers.0.self_attn.q_proj.weight": ("BF16", (64, 128)),
            "lm_head.weight": ("BF16", (32, 64)),
            "norm.weight": ("BF16", (64,)),
        }
        card = card_of(tmp_path, config, shapes)
        head = card.draft_head
        assert head is not None
        assert (head.kind, head.is_whole_checkpoint, head.layers) == ("eagle3", True, 1)
        assert (head.draft_vocab_size, head.target_hidden_size, head.target_layers) == (32, 128, (2, 14, 28))
        assert (head.maps_vocabulary, head.has_embedding, head.has_output_head) == (True, True, True)
        assert (head.speculative_tokens, head.verifier) == (5, "o/target")
        assert card.weights is not None
        assert card.weights.draft_head_bytes == 0, "all of it is a head, none of it an appendix"
        assert (card.hidden_size, card.layers) == (64, 1)

    def test_the_first_eagle_heads_look_like_a_small_llama(self, tmp_path: Path) -> None:
        shapes: Shapes = {
            "fc.weight": ("BF16", (64, 128)),
            "embed_tokens.weight": ("BF16", (320, 64)),
            "layers.0.self_attn.q_proj.weight": ("BF16", (64, 64)),
        }
        card = card_of(tmp_path, {**TINY, "num_hidden_layers": 1}, shapes)
        assert card.draft_head is not None
        assert (card.draft_head.kind, card.draft_head.has_output_head) == ("eagle", False)
        assert card.tied is False, "it uses the target's output head"

    @pytest.mark.parametrize(
        ("fields", "kind", "layers"),
        [
            ({"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3", 2),
            ({"model_type": "eagle", "model": {**TINY, "num_hidden_layers": 1}}, "eagle", 2),
            ({"model_type": "medusa", "medusa_num_heads": 4}, "medusa", 4),
            ({"architectures": ["DFlashDraftModel"], "dflash_config": {"target_layer_ids": [1]}}, "dflash", 2),
            ({"draft_vocab_size": 100}, "eagle3", 2),
        ],
    )
    def test_other_heads(self, fields: dict[str, Any], kind: str, layers: int, tmp_path: Path) -> None:
        head = card_of(tmp_path, {**TINY, **fields}).draft_head
        assert head is not None
        assert (head.kind, head.is_whole_checkpoint, head.layers) == (kind, True, layers)

    def test_a_model_that_sees_is_no_head(self, tmp_path: Path) -> None:
        config = {**TINY, "architectures": ["Eagle2_5_VLForConditionalGeneration"], "model_type": "eagle_2_5_vl"}
        assert card_of(tmp_path, config).draft_head is None

    def test_heads_in_a_checkpoint_of_their_own_are_no_appendix(self, tmp_path: Path) -> None:
        shapes: Shapes = {
            "medusa_heads.0.0.linear.weight": ("BF16", (64, 64)),
            "lm_heads.0.weight": ("BF16", (320, 64)),
        }
        weights = card_of(tmp_path, {"model_type": "medusa", "num_heads": 1, "hidden_size": 64}, shapes).weights
        assert weights is not None
        assert weights.bytes_of(Part.DRAFT_PROJECTION) == 64 * 64 * 2
        assert weights.bytes_of(Part.OUTPUT_HEAD) == 320 * 64 * 2
        assert weights.draft_head_bytes == 0

    def test_medusa_keeps_nothing_of_a_sequence(self, tmp_path: Path) -> None:
        card = card_of(tmp_path, {"model_type": "medusa", "num_heads": 4, "hidden_size": 64})
        assert (card.caches, card.kv_bytes_per_token()) == ((), 0)


@pytest.mark.parametrize("log", LOGS, ids=[log["id"] for log in LOGS])
def test_kv_bytes_as_vllm_printed_them(log: dict[str, Any], tmp_path: Path) -> None:
    """What engines printed at their start: GiB for the KV cache of a GPU, and how many tokens fit into it."""
    card = card_of(tmp_path, {**log["config"], "torch_dtype": "bfloat16"})
    one = card.kv_bytes_per_token(tensor=log["tensor"])
    assert one is not None
    layers = log["config"]["num_hidden_layers"]
    expected = one * (layers + log.get("draft_layers", 0)) / layers / log.get("decode_context", 1)
    assert log["kv_gib"] * 2**30 / log["kv_tokens"] == pytest.approx(expected, rel=log.get("tolerance", 0.001))


class TestLayers:
    @pytest.mark.parametrize(
        ("fields", "kinds"),
        [
            ({}, (FULL,) * 4),
            ({"sliding_window": 128, "model_type": "mistral"}, (SLIDING,) * 4),
            ({"sliding_window": None, "model_type": "mistral"}, (FULL,) * 4),
            ({"sliding_window": 128, "model_type": "qwen2"}, (FULL,) * 4),
            ({"sliding_window": 128, "use_sliding_window": False}, (FULL,) * 4),
            ({"sliding_window": 128, "use_sliding_window": True, "max_window_layers": 3}, (FULL, FULL, FULL, SLIDING)),
            ({"sliding_window": 128, "model_type": "gemma2"}, (SLIDING, FULL) * 2),
            ({"sliding_window": 128, "sliding_window_pattern": 3}, (SLIDING, SLIDING, FULL, SLIDING)),
            ({"layer_types": ["linear_attention", "full_attention"]}, (STATE, FULL) * 2),
            ({"layers_block_type": ["mamba", "hybrid"] * 2}, (STATE, LayerKind.FULL_AND_STATE) * 2),
            ({"hybrid_override_pattern": "M-*E"}, (STATE, NONE, FULL, NONE)),
            ({"attn_type_list": [0, 1, 0, 1]}, (STATE, FULL) * 2),
            ({"attn_layer_period": 4, "attn_layer_offset": 1}, (STATE, FULL, STATE, STATE)),
            ({"attn_layer_indices": [2]}, (STATE, STATE, FULL, STATE)),
            ({"linear_attn_config": {"full_attn_layers": [4]}}, (STATE, STATE, STATE, FULL)),
            ({"hybrid_layer_pattern": [1, 1, 0, 1], "sliding_window": 128}, (SLIDING, SLIDING, FULL, SLIDING)),
            ({"model_type": "llama4_text", "attention_chunk_size": 8192}, (CHUNKED, CHUNKED, CHUNKED, FULL)),
            (
                {"model_type": "llama4_text", "attention_chunk_size": 8192, "no_rope_layers": [1, 0, 1, 0]},
                (CHUNKED, FULL) * 2,
            ),
            ({"model_type": "mamba2"}, (STATE,) * 4),
            ({"block_configs": [{"attention": {"n_heads_in_group": 4}}, {"attention": {"no_op": True}}] * 2},
             (FULL, NONE) * 2),
        ],
    )  # fmt: skip
    def test_kinds(self, fields: dict[str, Any], kinds: tuple[LayerKind, ...], tmp_path: Path) -> None:
        assert card_of(tmp_path, {**TINY, "num_hidden_layers": 4, **fields}).layer_kinds == kinds

    def test_state_of_gated_delta_nets(self, tmp_path: Path) -> None:
        """For Qwen3.6-27B vLLM printed an attention block of 784 tokens: as many as have the size of one state."""
        caches = card_of(tmp_path, QWEN36_27B).caches
        assert caches is not None
        (state,) = (cache for cache in caches if cache.kind is STATE)
        assert state.state_bytes == 3 * (2 * 16 * 128 + 48 * 128) * 2 + 48 * 128 * 128 * 4
        attention = 4 * (256 + 256) * 2
        assert 16 * -(-state.state_bytes // (16 * attention)) == 784

    @pytest.mark.parametrize(
        ("fields", "size"),
        [
            (  # Mamba-2: 128 heads of 64, state 128, 8 groups
                {"mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4},
                3 * (128 * 64 + 2 * 8 * 128) * 2 + 128 * 64 * 128 * 2,
            ),
            ({"state_size": 16, "expand": 2, "conv_kernel": 4, "hidden_size": 64}, 3 * 128 * 2 + 128 * 16 * 2),
            ({"conv_L_cache": 3, "hidden_size": 64}, 2 * 64 * 2),
            (
                {"linear_attn_config": {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4}},
                3 * 3 * 32 * 128 * 2 + 32 * 128 * 128 * 4,
            ),
            ({}, None),
        ],
    )
    def test_other_states(self, fields: dict[str, Any], size: float | None, tmp_path: Path) -> None:
        caches = card_of(tmp_path, {**TINY, **fields, "layer_types": ["linear_attention"]}).caches
        assert caches is not None
        assert [cache.state_bytes for cache in caches] == [size]

    def test_gemma4_has_other_heads_in_full_layers(self, tmp_path: Path) -> None:
        config = {
            **TINY, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
            "num_global_key_value_heads": 4, "global_head_dim": 512, "sliding_window": 1024,
            "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
        }  # fmt: skip
        card = card_of(tmp_path, config)
        assert card.kv_bytes_per_token(FULL, dtype_bytes=1, tensor=2) == 20_480  # as worked out from a start's log
        assert card.kv_bytes_per_token(SLIDING) == 50 * 16 * 512 * 2

    def test_layers_that_read_the_cache_of_others_keep_none(self, tmp_path: Path) -> None:
        card = card_of(tmp_path, {**TINY, "num_hidden_layers": 10, "num_kv_shared_layers": 4})
        assert card.kv_bytes_per_token() == 6 * 2 * 32 * 2
        assert card.caches is not None
        assert [(cache.layers, cache.storing_layers) for cache in card.caches] == [(10, 6)]

    def test_heads_by_layer(self, tmp_path: Path) -> None:
        card = card_of(tmp_path, {**TINY, "num_key_value_heads": [2, 1]})
        assert card.kv_bytes_per_token() == (2 + 1) * 32 * 2

    def test_sparse_attention(self, tmp_path: Path) -> None:
        """DeepSeek-V3.2 took 78,326 bytes for each token, by a start's log."""
        config = {**DEEPSEEK_V3, "index_head_dim": 128, "index_topk": 2048, "index_n_heads": 64}
        assert card_of(tmp_path, config).kv_bytes_per_token() == pytest.approx(78_326, rel=0.0001)

    def test_unknown_ways_are_unknown(self, tmp_path: Path) -> None:
        card = card_of(tmp_path, {**TINY, "compress_ratios": [1, 4]})
        assert (card.caches, card.kv_bytes_per_token()) == (None, None)

    def test_key_and_value_sizes_may_differ(self, tmp_path: Path) -> None:
        config = {
            **TINY, "head_dim": 192, "v_head_dim": 128, "hybrid_layer_pattern": [0, 1], "sliding_window": 128,
            "swa_num_key_value_heads": 4, "swa_head_dim": 64, "swa_v_head_dim": 32,
        }  # fmt: skip
        card = card_of(tmp_path, config)
        assert (card.key_size, card.value_size) == (192, 128)
        assert card.kv_bytes_per_token(FULL) == 2 * (192 + 128) * 2
        assert card.kv_bytes_per_token(SLIDING) == 4 * (64 + 32) * 2
