"""What a card says of a model folder: of whole weights, of an index alone, of a config alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from backend.checkpoints.card_reader import read_card
from backend.checkpoints.layer_kinds import LayerKind
from backend.checkpoints.weight_parts import Part
from backend.errors import ModelError
from tests.fakes.model_folders import tensor_bytes, write_index, write_model, write_safetensors
from tests.fakes.public_models import (
    DEEPSEEK_V3,
    GEMMA3_4B,
    GPT_OSS_20B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B,
    QWEN3_NEXT,
    TINY,
    Shapes,
    deepseek,
    gpt_oss,
    llama,
    qwen3_moe,
)

FULL, SLIDING, STATE = LayerKind.FULL, LayerKind.SLIDING, LayerKind.STATE


class TestTiny:
    """Every figure by hand: 2 layers, hidden 64, 4 heads of 16 over 2 KV heads, inner 160, 320 tokens, 2 bytes each."""

    def test_whole(self, tmp_path: Path) -> None:
        card = read_card(write_model(tmp_path / "m", TINY, llama(TINY)))
        assert card.weights is not None
        sizes = {part.part: part.size_bytes for part in card.weights.parts}
        assert sizes == {
            Part.EMBEDDING: 320 * 64 * 2,
            Part.OUTPUT_HEAD: 320 * 64 * 2,
            Part.ATTENTION: 2 * (64 * 64 + 64 * 64) * 2,
            Part.KV_PROJECTION: 2 * (32 * 64 + 32 * 64) * 2,
            Part.MLP: 2 * 3 * 160 * 64 * 2,
            Part.NORM: (2 * 2 + 1) * 64 * 2,
        }
        assert card.weights.exact
        assert card.weights.by_dtype == {"BF16": sum(sizes.values())}
        assert card.weights.embedding_row_bytes == 64 * 2
        assert card.kv_bytes_per_token() == 2 * 2 * (16 + 16) * 2
        assert (card.layers, card.attention_heads, card.kv_heads, card.key_size, card.value_size) == (2, 4, 2, 16, 16)
        assert (card.hidden_size, card.intermediate_size, card.vocab_size) == (64, 160, 320)
        assert (card.architectures, card.model_type, card.dtype) == (("LlamaForCausalLM",), "llama", "bfloat16")
        assert (card.tied, card.experts, card.mla, card.quantisation, card.draft_head) == (
            False,
            None,
            None,
            None,
            None,
        )
        assert card.layer_kinds == (FULL, FULL)

    def test_shards(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", TINY)
        shapes = llama(TINY)
        names = list(shapes)
        files = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
        for file, part in files.items():
            write_safetensors(folder / file, {name: shapes[name] for name in part})
        whole = read_card(write_model(tmp_path / "one", TINY, shapes)).weights
        assert read_card(folder).weights == whole, "without an index"
        weight_map = {name: file for file, part in files.items() for name in part}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        assert read_card(folder).weights == whole, "with an index"
        (folder / "model-00002-of-00002.safetensors").unlink()
        with pytest.raises(ModelError, match=r"model-00002-of-00002.safetensors is missing"):
            read_card(folder)
        (folder / "model.safetensors.index.json").unlink()
        with pytest.raises(ModelError, match=r"model-00002-of-00002.safetensors is missing"):
            read_card(folder)

    def test_index_alone_is_exact_where_shapes_add_up(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", TINY)
        write_index(folder, llama(TINY))
        assert read_card(folder).weights == read_card(write_model(tmp_path / "whole", TINY, llama(TINY))).weights

    def test_index_alone_without_a_total_is_an_estimate(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", TINY)
        write_index(folder, llama(TINY), total=False)
        weights = read_card(folder).weights
        assert weights is not None
        assert not weights.exact
        assert weights.total_bytes == sum(tensor_bytes(*tensor) for tensor in llama(TINY).values())

    def test_index_alone_of_what_is_not_explained_keeps_the_total(self, tmp_path: Path) -> None:
        shapes: Shapes = {**llama(TINY), "model.layers.0.self_attn.unheard_of": ("BF16", (1000, 10))}
        folder = write_model(tmp_path / "m", TINY)
        write_index(folder, shapes)
        weights = read_card(folder).weights
        assert weights is not None
        assert not weights.exact
        assert weights.total_bytes == sum(tensor_bytes(*tensor) for tensor in shapes.values())
        assert weights.bytes_of(Part.MLP) > 2 * 3 * 160 * 64 * 2

    def test_index_alone_of_unknown_names_is_other(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", TINY)
        write_index(folder, {f"x.{number}": ("BF16", (100,)) for number in range(10)})
        weights = read_card(folder).weights
        assert weights is not None
        assert (weights.exact, weights.bytes_of(Part.OTHER), weights.total_bytes) == (False, 2000, 2000)

    def test_config_alone(self, tmp_path: Path) -> None:
        card = read_card(write_model(tmp_path / "m", TINY))
        assert card.weights is None
        assert "index" in card.weights_problem
        assert card.kv_bytes_per_token() == 2 * 2 * 32 * 2

    def test_pickled_weights_are_measured_but_not_opened(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", TINY)
        (folder / "pytorch_model.bin").write_bytes(b"x" * 1000)
        (folder / "training_args.bin").write_bytes(b"x" * 7)
        weights = read_card(folder).weights
        assert weights is not None
        assert (weights.total_bytes, weights.exact) == (1000, False)

    def test_tied_by_flag_and_by_absence(self, tmp_path: Path) -> None:
        flagged = read_card(write_model(tmp_path / "a", {**TINY, "tie_word_embeddings": True}, llama(TINY)))
        absent = read_card(write_model(tmp_path / "b", TINY, llama(TINY, head=False)))
        assert flagged.tied
        assert absent.tied
        assert absent.output_head_bytes == 320 * 64 * 2

    def test_dtype_follows_the_weights_where_the_config_is_silent(self, tmp_path: Path) -> None:
        config = {name: value for name, value in TINY.items() if name != "torch_dtype"}
        assert read_card(write_model(tmp_path / "m", config, llama(TINY, dtype="F16"))).dtype == "float16"
        assert read_card(write_model(tmp_path / "n", {**config, "dtype": "torch.float32"})).dtype == "float32"

    def test_through_links_as_in_the_hub_cache(self, tmp_path: Path) -> None:
        blobs = write_model(tmp_path / "blobs", TINY, llama(TINY))
        snapshot = tmp_path / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        for file in blobs.iterdir():
            (snapshot / file.name).symlink_to(Path("../../blobs") / file.name)
        assert read_card(snapshot).weights == read_card(blobs).weights
        (blobs / "model.safetensors").unlink()
        with pytest.raises(ModelError, match=r"model.safetensors is missing"):
            read_card(snapshot)

    def test_adapters_and_second_copies_are_no_part_of_the_model(self, tmp_path: Path) -> None:
        folder = write_model(tmp_path / "m", TINY, llama(TINY))
        whole = read_card(folder).weights
        write_safetensors(folder / "adapter_model.safetensors", {"a": ("BF16", (9, 9))})
        write_safetensors(folder / "consolidated.safetensors", {"b": ("BF16", (9, 9))})
        assert read_card(folder).weights == whole


class TestPublicModels:
    def test_llama(self, tmp_path: Path) -> None:
        small = read_card(write_model(tmp_path / "8b", LLAMA_8B, llama(LLAMA_8B)))
        large = read_card(write_model(tmp_path / "70b", LLAMA_70B, llama(LLAMA_70B)))
        assert small.weights is not None
        assert large.weights is not None
        assert small.weights.total_bytes == 2 * 8_030_261_248  # parameters as published
        assert large.weights.total_bytes == 2 * 70_553_706_496
        assert (small.kv_bytes_per_token(), large.kv_bytes_per_token()) == (131_072, 327_680)
        assert (small.context.positions, small.context.engine) == (131_072, 131_072)
        assert small.context.rope is not None
        assert (small.context.rope.kind, small.context.rope.stretched_tokens) == ("llama3", 65_536)

    def test_qwen3_moe(self, tmp_path: Path) -> None:
        card = read_card(write_model(tmp_path / "m", QWEN3_30B, qwen3_moe(QWEN3_30B)))
        assert card.weights is not None
        assert card.weights.total_bytes == 2 * 30_532_122_624
        assert card.weights.bytes_of(Part.EXPERTS) == 48 * 128 * 3 * 768 * 2048 * 2
        assert card.weights.bytes_of(Part.ROUTER) == 48 * 128 * 2048 * 2
        assert card.weights.bytes_of(Part.MLP) == 0
        assert card.experts is not None
        assert (card.experts.routed, card.experts.per_token, card.experts.shared) == (128, 8, 0)
        assert card.experts.intermediate_size == 768
        assert card.kv_bytes_per_token() == 98_304

    def test_deepseek(self, tmp_path: Path) -> None:
        config = {**DEEPSEEK_V3, "num_hidden_layers": 6}  # three of them dense
        shapes = deepseek(config)
        card = read_card(write_model(tmp_path / "m", config, shapes))
        weights = card.weights
        assert weights is not None
        scaled = 1 + 4 / 128**2  # a byte for each weight and four for the scale of a block
        assert weights.bytes_of(Part.EXPERTS) == 3 * 256 * 3 * 2048 * 7168 * scaled
        assert weights.bytes_of(Part.SHARED_EXPERTS) == 3 * 3 * 2048 * 7168 * scaled
        assert weights.bytes_of(Part.MLP) == 3 * 3 * 18432 * 7168 * scaled
        assert weights.bytes_of(Part.LATENT_PROJECTION) == 6 * (
            1536 * 7168 * scaled + 576 * 7168 + 4 * 5 * 56  # 576 rows are four and a half blocks
        )
        assert weights.bytes_of(Part.OUTPUT_HEAD) == 129280 * 7168 * 2
        assert weights.bytes_of(Part.DRAFT_PROJECTION, in_draft_head=True) == 7168 * 2 * 7168 * 2
        assert weights.bytes_of(Part.EXPERTS, in_draft_head=True) == 256 * 3 * 2048 * 7168 * scaled
        assert weights.total_bytes == sum(tensor_bytes(*tensor) for tensor in shapes.values())
        assert weights.draft_head_bytes == sum(
            tensor_bytes(*tensor) for name, tensor in shapes.items() if ".layers.6." in name
        )
        assert card.kv_bytes_per_token() == 6 * (512 + 64) * 2
        assert card.mla is not None
        assert (card.mla.kv_rank, card.mla.q_rank, card.mla.rope_size, card.mla.nope_size) == (512, 1536, 64, 128)
        assert (card.key_size, card.value_size) == (192, 128)
        assert card.draft_head is not None
        assert (card.draft_head.kind, card.draft_head.layers, card.draft_head.in_checkpoint) == ("mtp", 1, True)
        assert not card.draft_head.is_whole_checkpoint
        assert card.quantisation is not None
        assert (card.quantisation.method, card.quantisation.block_shape) == ("fp8", (128, 128))
        assert card.remote_code == ("configuration_deepseek.DeepseekV3Config",)
        assert card.context.engine == 163_840
        assert card.context.rope is not None
        assert card.context.rope.stretched_tokens == 163_840

    def test_a_promised_draft_layer_that_the_weights_lack(self, tmp_path: Path) -> None:
        config = {**DEEPSEEK_V3, "num_hidden_layers": 4}
        shapes = {name: tensor for name, tensor in deepseek(config).items() if ".layers.4." not in name}
        draft = read_card(write_model(tmp_path / "m", config, shapes)).draft_head
        assert draft is not None
        assert draft.in_checkpoint is False
        unknown = read_card(write_model(tmp_path / "n", config)).draft_head
        assert unknown is not None
        assert unknown.in_checkpoint is None

    def test_gemma3(self, tmp_path: Path) -> None:
        """Its config leaves out what transformers adds: 8 heads over 4, of 256, a window in 5 of 6 layers."""
        shapes: Shapes = {
            "language_model.model.embed_tokens.weight": ("BF16", (262208, 2560)),
            "language_model.model.layers.0.self_attn.q_proj.weight": ("BF16", (2048, 2560)),
            "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight": ("BF16", (1152, 1152)),
            "vision_tower.vision_model.encoder.layers.26.mlp.fc1.weight": ("BF16", (4304, 1152)),
            "multi_modal_projector.mm_input_projection_weight": ("BF16", (1152, 2560)),
        }
        card = read_card(write_model(tmp_path / "m", GEMMA3_4B, shapes))
        assert card.weights is not None
        assert card.weights.bytes_of(Part.ENCODER) == 2 * (1152 * 1152 + 4304 * 1152 + 1152 * 2560)
        assert card.weights.bytes_of(Part.ATTENTION) == 2 * 2048 * 2560
        assert card.tied
        assert (card.attention_heads, card.kv_heads, card.key_size, card.vocab_size) == (8, 4, 256, 262208)
        assert [number for number, kind in enumerate(card.layer_kinds) if kind is FULL] == [5, 11, 17, 23, 29]
        one_layer = 4 * (256 + 256) * 2
        assert card.kv_bytes_per_token(FULL) == 5 * one_layer
        assert card.kv_bytes_per_token(SLIDING) == 29 * one_layer
        assert card.caches is not None
        assert {cache.kind: cache.window_tokens for cache in card.caches} == {FULL: None, SLIDING: 1024}
        assert card.modalities == ("vision",)
        assert card.context.engine == 131_072, "stretched already"

    def test_gpt_oss(self, tmp_path: Path) -> None:
        card = read_card(write_model(tmp_path / "m", GPT_OSS_20B, gpt_oss(GPT_OSS_20B)))
        assert card.weights is not None
        assert card.weights.total_bytes == 13_761_264_768  # as its index says
        numbers = 24 * 32 * 3 * 2880 * 2880
        biases = 24 * 32 * (2 * 2880 + 2880) * 2
        assert card.weights.bytes_of(Part.EXPERTS) == numbers * (4 + 8 / 32) / 8 + biases
        assert card.quantisation is not None
        assert (card.quantisation.method, card.quantisation.bits, card.quantisation.group_size) == ("mxfp4", 4, 32)
        assert card.layer_kinds == (SLIDING, FULL) * 12
        assert card.kv_bytes_per_token(FULL) == card.kv_bytes_per_token(SLIDING) == 12 * 8 * 128 * 2

    def test_hybrid(self, tmp_path: Path) -> None:
        shapes: Shapes = {
            "model.layers.0.linear_attn.in_proj_qkvz.weight": ("BF16", (12288, 2048)),
            "model.layers.0.linear_attn.A_log": ("BF16", (32,)),
            "model.layers.3.self_attn.q_proj.weight": ("BF16", (8192, 2048)),
            "model.layers.3.self_attn.k_proj.weight": ("BF16", (512, 2048)),
            "model.layers.0.mlp.shared_expert.up_proj.weight": ("BF16", (512, 2048)),
            "model.layers.0.mlp.shared_expert_gate.weight": ("BF16", (1, 2048)),
            "mtp.layers.0.mlp.experts.7.up_proj.weight": ("BF16", (512, 2048)),
            "mtp.fc.weight": ("BF16", (2048, 4096)),
        }
        card = read_card(write_model(tmp_path / "m", {**QWEN3_NEXT, "mtp_num_hidden_layers": 1}, shapes))
        assert card.weights is not None
        assert card.weights.bytes_of(Part.STATE) == 2 * (12288 * 2048 + 32)
        assert card.weights.bytes_of(Part.ATTENTION) == 2 * 8192 * 2048
        assert card.weights.bytes_of(Part.KV_PROJECTION) == 2 * 512 * 2048
        assert card.weights.bytes_of(Part.SHARED_EXPERTS) == 2 * 512 * 2048
        assert card.weights.bytes_of(Part.ROUTER) == 2 * 2048
        assert card.weights.bytes_of(Part.EXPERTS, in_draft_head=True) == 2 * 512 * 2048
        assert card.weights.bytes_of(Part.DRAFT_PROJECTION, in_draft_head=True) == 2 * 2048 * 4096
        assert card.layer_kinds == (STATE, STATE, STATE, FULL) * 12
        assert card.kv_bytes_per_token() == 12 * 2 * (256 + 256) * 2
        assert card.kv_bytes_per_token(STATE) == 0
        assert card.experts is not None
        assert (card.experts.routed, card.experts.shared) == (512, 1)

    def test_queries_keys_and_values_in_one_tensor(self, tmp_path: Path) -> None:
        shapes: Shapes = {"transformer.h.0.attn.qkv_proj.weight": ("BF16", ((4 + 2 + 2) * 16, 64))}
        weights = read_card(write_model(tmp_path / "m", TINY, shapes)).weights
        assert weights is not None
        assert weights.bytes_of(Part.ATTENTION) == 4 * 16 * 64 * 2
        assert weights.bytes_of(Part.KV_PROJECTION) == 4 * 16 * 64 * 2

    @pytest.mark.parametrize(
        ("name", "part"),
        [
            ("transformer.wte.weight", Part.EMBEDDING),
            ("model.decoder.embed_positions.weight", Part.EXTRA_EMBEDDING),
            ("model.language_model.embed_tokens_per_layer.weight", Part.EXTRA_EMBEDDING),
            ("model.decoder.layers.0.fc1.weight", Part.MLP),
            ("transformer.h.0.ln_1.weight", Part.NORM),
            ("model.layers.1.attention.wo.weight", Part.ATTENTION),
            ("model.layers.1.feed_forward.w1.weight", Part.MLP),
            ("output.weight", Part.OUTPUT_HEAD),
            ("model.layers.1.block_sparse_moe.experts.3.w2.weight", Part.EXPERTS),
            ("model.layers.1.self_attn.indexer.wk.weight", Part.LATENT_PROJECTION),
            ("model.layers.1.self_attn.k_proj.weight_scale_inv", Part.KV_PROJECTION),
            ("backbone.layers.1.mixer.in_proj.weight", Part.STATE),
            ("backbone.layers.1.mixer.A_log", Part.STATE),
            ("backbone.layers.1.mixer.v_proj.weight", Part.KV_PROJECTION),
            ("backbone.layers.1.mixer.up_proj.weight", Part.MLP),
            ("model.layers.1.conv.conv.weight", Part.STATE),
            ("visual.blocks.31.attn.qkv.weight", Part.ENCODER),
            ("audio_tower.layers.5.fc1.weight", Part.ENCODER),
            ("model.rotary_emb.inv_freq", Part.OTHER),
        ],
    )
    def test_names_of_other_families(self, name: str, part: Part, tmp_path: Path) -> None:
        weights = read_card(write_model(tmp_path / "m", TINY, {name: ("BF16", (8, 8))})).weights
        assert weights is not None
        assert weights.bytes_of(part) == 128


class TestContext:
    @pytest.mark.parametrize(
        ("fields", "tokenizer_limit", "engine"),
        [
            ({}, None, 512),
            ({}, 100, 100),
            ({}, 1e30, 512),
            ({"rope_scaling": {"type": "linear", "factor": 4}}, None, 2048),
            ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, None, 1024),
            ({"rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 128}}, None, 512),
            ({"rope_scaling": {"type": "mrope", "mrope_section": [1, 2]}}, None, 512),
            ({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8}}}, None, 4096),
            ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, None, 512),
            ({"n_positions": 256}, None, 256),
            ({"model_max_length": 8192}, None, 8192),
        ],
    )
    def test_limit(self, fields: dict[str, Any], tokenizer_limit: float | None, engine: int, tmp_path: Path) -> None:
        files = {"tokenizer_config.json": {"model_max_length": tokenizer_limit}}
        card = read_card(write_model(tmp_path / "m", {**TINY, **fields}, files=files))
        assert card.context.engine == engine
        assert card.context.tokenizer == (100 if tokenizer_limit == 100 else None), "1e30 means that there is no limit"

    def test_chat_template(self, tmp_path: Path) -> None:
        assert not read_card(write_model(tmp_path / "none", TINY)).has_chat_template
        files = {"tokenizer_config.json": {"chat_template": "{{ x }}", "auto_map": {"AutoTokenizer": ["a.B", None]}}}
        told = read_card(write_model(tmp_path / "told", TINY, files=files))
        assert (told.has_chat_template, told.remote_code) == (True, ("a.B",))
        folder = write_model(tmp_path / "file", TINY)
        (folder / "chat_template.jinja").write_text("{{ x }}")
        assert read_card(folder).has_chat_template
