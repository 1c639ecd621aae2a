"""Bytes that a step reads, worked out by hand from the shapes of public models."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.checkpoints.card import ModelCard
from backend.checkpoints.card_reader import read_card
from backend.planning.roofline import (
    Parallel,
    StepBytes,
    bytes_per_decode,
    bytes_per_step,
    decode_ceiling_tokens_per_s,
    step_floor_s,
)
from tests.fakes.model_folders import write_model
from tests.fakes.public_models import (
    DEEPSEEK_V3,
    GEMMA3_4B,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B,
    QWEN3_NEXT,
    TINY,
    Shapes,
    deepseek,
    llama,
    qwen3_moe,
)

ONE = Parallel()
GIB = 2**30


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelCard]:
    folder = tmp_path_factory.mktemp("models")
    small = {**DEEPSEEK_V3, "num_hidden_layers": 6}
    models: dict[str, tuple[dict[str, Any], Shapes | None]] = {
        "tiny": (TINY, llama(TINY)),
        "tied": ({**TINY, "tie_word_embeddings": True}, llama(TINY, head=False)),
        "f32": ({**TINY, "torch_dtype": "float32"}, llama(TINY, dtype="F32")),
        "llama-8b": (LLAMA_8B, llama(LLAMA_8B)),
        "llama-70b": (LLAMA_70B, llama(LLAMA_70B)),
        "qwen3-moe": ({**QWEN3_30B, "num_hidden_layers": 6}, qwen3_moe({**QWEN3_30B, "num_hidden_layers": 6})),
        "deepseek": (small, deepseek(small)),
        "gemma3": (GEMMA3_4B, None),
        "qwen3-next": (QWEN3_NEXT, None),
    }
    return {name: read_card(write_model(folder / name, config, shapes)) for name, (config, shapes) in models.items()}


def test_the_check_value() -> None:
    """140 GB at 3.35 TB/s are 23.9 tokens/s."""
    assert decode_ceiling_tokens_per_s(140e9, 3.35e12) == pytest.approx(23.9, abs=0.05)
    assert step_floor_s(140e9, 3.35e12) == pytest.approx(0.0418, abs=0.0001)


class TestTiny:
    """2 layers, hidden 64, 4 heads of 16 over 2 KV heads, inner 160, 320 tokens, 2 bytes each."""

    LAYER = (64 * 64 * 2 + 32 * 64 * 2 + 3 * 160 * 64) * 2
    NORMS = 5 * 64 * 2
    HEAD = 320 * 64 * 2
    ROW = 64 * 2

    def test_one_gpu(self, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(cards["tiny"], ONE, 1, 100)
        assert step.weights_bytes == 2 * self.LAYER + self.NORMS + self.HEAD + self.ROW
        assert step.kv_bytes == 100 * 2 * 2 * (16 + 16) * 2
        assert step.total_bytes == step.weights_bytes + step.kv_bytes

    def test_the_batch_reads_weights_once_and_each_its_context(self, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(cards["tiny"], ONE, 8, 100, query_tokens=4)
        assert step.weights_bytes == 2 * self.LAYER + self.NORMS + self.HEAD + 8 * 4 * self.ROW
        assert step.kv_bytes == 8 * 100 * 256

    def test_a_tied_table_is_read_as_the_head(self, cards: dict[str, ModelCard]) -> None:
        assert bytes_per_step(cards["tied"], ONE, 1, 0) == bytes_per_step(cards["tiny"], ONE, 1, 0)

    def test_tensor_parallel(self, cards: dict[str, ModelCard]) -> None:
        two = bytes_per_step(cards["tiny"], Parallel(tensor=2), 1, 100)
        assert two.weights_bytes == self.LAYER + self.NORMS + self.HEAD / 2 + self.ROW / 2
        assert two.kv_bytes == 100 * 2 * 1 * 32 * 2
        four = bytes_per_step(cards["tiny"], Parallel(tensor=4), 1, 100)
        keys_and_values = 32 * 64 * 2 * 2
        layer = (self.LAYER - keys_and_values) / 4 + keys_and_values / 2  # two heads cannot be cut in four
        assert four.weights_bytes == 2 * layer + self.NORMS + self.HEAD / 4 + self.ROW / 4
        assert four.kv_bytes == two.kv_bytes

    def test_pipeline(self, cards: dict[str, ModelCard]) -> None:
        two = bytes_per_step(cards["tiny"], Parallel(pipeline=2), 1, 100)
        assert two.weights_bytes == self.LAYER + self.NORMS / 2 + self.HEAD, "the last stage has the output head"
        assert two.kv_bytes == 100 * 128

    def test_uneven_pipeline(self, tmp_path: Path) -> None:
        """Of 5 layers in 4 stages vLLM gives two to the third, of 5 in 3 one to the last."""
        config = {**TINY, "num_hidden_layers": 5, "vocab_size": 4}
        card = read_card(write_model(tmp_path / "m", config, llama(config)))
        layer, head = self.LAYER + 11 * 64 * 2 / 5, 4 * 64 * 2
        tokens = 1000  # so many rows of the embedding that the first stage would be the busiest with two layers
        first, third = layer + tokens * self.ROW, 2 * layer
        four = bytes_per_step(card, Parallel(pipeline=4), 1, 0, query_tokens=tokens)
        assert first > third
        assert four.weights_bytes == pytest.approx(first)
        three = bytes_per_step(card, Parallel(pipeline=3), 1, 10)
        assert three.weights_bytes == pytest.approx(2 * layer + self.ROW)
        assert 2 * layer > layer + head
        assert three.kv_bytes == pytest.approx(10 * 2 * 128)

    def test_float32_is_rounded_unless_asked_for(self, cards: dict[str, ModelCard]) -> None:
        rounded = bytes_per_step(cards["f32"], ONE, 2, 10)
        assert rounded == bytes_per_step(cards["tiny"], ONE, 2, 10)
        kept = bytes_per_step(cards["f32"], ONE, 2, 10, dtype_bytes=4, kv_dtype_bytes=4)
        assert kept.weights_bytes == 2 * (rounded.weights_bytes or 0)
        assert kept.kv_bytes == 2 * (rounded.kv_bytes or 0)

    def test_kv_dtype(self, cards: dict[str, ModelCard]) -> None:
        assert bytes_per_step(cards["tiny"], ONE, 1, 100, kv_dtype_bytes=1).kv_bytes == 100 * 128


def test_llama(cards: dict[str, ModelCard]) -> None:
    step = bytes_per_step(cards["llama-8b"], ONE, 1, 8192)
    assert step.weights_bytes == 2 * 8_030_261_248 - 128_256 * 4096 * 2 + 4096 * 2
    assert step.kv_bytes == GIB
    large = bytes_per_step(cards["llama-70b"], Parallel(tensor=8), 1, 8192)
    norms = 161 * 8192 * 2
    embedding = 128_256 * 8192 * 2
    assert large.weights_bytes == (2 * 70_553_706_496 - embedding - norms + 8192 * 2) / 8 + norms
    assert large.kv_bytes == 8192 * 80 * 1 * 256 * 2


class TestExperts:
    EXPERT = 3 * 768 * 2048 * 2
    REST = 6 * (2 * 32 * 128 * 2048 + 2 * 4 * 128 * 2048 + 128 * 2048 + 2 * 2048 + 2 * 128) * 2 + 2048 * 2
    HEAD = 151_936 * 2048 * 2

    def test_one_token_reads_eight(self, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(cards["qwen3-moe"], ONE, 1, 0)
        assert step.weights_bytes == pytest.approx(self.REST + self.HEAD + 2048 * 2 + 6 * 8 * self.EXPERT, rel=1e-12)

    @pytest.mark.parametrize(("batch", "query_tokens"), [(2, 1), (4, 4), (64, 1), (1, 5)])
    def test_the_union_of_what_tokens_use(self, batch: int, query_tokens: int, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(cards["qwen3-moe"], ONE, batch, 0, query_tokens=query_tokens)
        tokens = batch * query_tokens
        not_used = 1.0
        for _ in range(tokens):
            not_used *= 120 / 128  # each token leaves out 120 of 128
        experts = 6 * 128 * (1 - not_used) * self.EXPERT
        assert step.weights_bytes == pytest.approx(self.REST + self.HEAD + tokens * 4096 + experts, rel=1e-12)

    def test_many_tokens_read_all(self, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(cards["qwen3-moe"], ONE, 10_000, 0)
        assert step.weights_bytes == pytest.approx(self.REST + self.HEAD + 10_000 * 4096 + 6 * 128 * self.EXPERT)

    def test_whole_experts_or_slices(self, cards: dict[str, ModelCard]) -> None:
        def experts(parallel: Parallel) -> float:
            whole, card = bytes_per_step(cards["qwen3-moe"], parallel, 8, 0), cards["qwen3-moe"]
            none = replace(card.experts, per_token=None) if card.experts else None
            all_read = bytes_per_step(replace(card, experts=none), parallel, 8, 0)
            used = 1 - (120 / 128) ** (8 * parallel.data)
            # What is not an expert is in both, so the difference is the share of the experts that is left out.
            return ((all_read.weights_bytes or 0) - (whole.weights_bytes or 0)) / (1 - used)

        everything = 6 * 128 * self.EXPERT
        assert experts(Parallel(tensor=4)) == pytest.approx(everything / 4)
        assert experts(Parallel(tensor=2, data=2)) == pytest.approx(everything / 4)
        spread = bytes_per_step(cards["qwen3-moe"], Parallel(tensor=3, expert=True), 10_000, 0).weights_bytes or 0
        sliced = bytes_per_step(cards["qwen3-moe"], Parallel(tensor=3), 10_000, 0).weights_bytes or 0
        assert spread - sliced == pytest.approx(everything * (43 / 128 - 1 / 3)), "one of three GPUs has 43 of 128"


class TestDeepseek:
    SCALED = 1 + 4 / 128**2
    EXPERT = 3 * 2048 * 7168 * SCALED
    NORMS = (6 * (1536 + 512 + 2 * 7168) + 7168) * 2
    ROUTER = 3 * (256 * 7168 * 2 + 256 * 4)
    LATENT = 6 * (1536 * 7168 * SCALED + 576 * 7168 + 4 * 5 * 56)
    ATTENTION = 6 * (128 * 192 * 1536 + 128 * 256 * 512 + 7168 * 128 * 128) * SCALED
    DENSE = 3 * 3 * 18432 * 7168 * SCALED
    HEAD = 129_280 * 7168 * 2

    def test_step(self, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(cards["deepseek"], ONE, 1, 1000)
        layers = self.NORMS + self.ROUTER + self.LATENT + self.ATTENTION + self.DENSE + 3 * (1 + 8) * self.EXPERT
        assert step.weights_bytes == pytest.approx(layers + self.HEAD + 7168 * 2, rel=1e-12)
        assert step.kv_bytes == 1000 * 6 * 576 * 2

    def test_the_latent_is_on_every_gpu(self, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(cards["deepseek"], Parallel(tensor=8), 1, 1000)
        shared = self.ATTENTION + self.DENSE + 3 * (1 + 8) * self.EXPERT + self.HEAD + 7168 * 2
        assert step.weights_bytes == pytest.approx(self.NORMS + self.ROUTER + self.LATENT + shared / 8, rel=1e-12)
        assert step.kv_bytes == 1000 * 6 * 576 * 2
        by_position = bytes_per_step(cards["deepseek"], Parallel(tensor=8, decode_context=8), 1, 1000)
        assert by_position.kv_bytes == 1000 * 6 * 576 * 2 / 8

    def test_drafts_of_its_own(self, cards: dict[str, ModelCard]) -> None:
        card = cards["deepseek"]
        both = bytes_per_decode(card, None, ONE, 1, 1000, 2, own_draft_head=True)
        check = bytes_per_step(card, ONE, 1, 1000, query_tokens=3)
        latent, attention = self.LATENT / 6, self.ATTENTION / 6
        norms = (1536 + 512 + 2 * 7168 + 3 * 7168) * 2
        one = norms + self.ROUTER / 3 + latent + attention + (1 + 8) * self.EXPERT + 2 * 7168 * 7168 * 2 + self.HEAD
        assert both.weights_bytes == pytest.approx((check.weights_bytes or 0) + 2 * one, rel=1e-12)
        assert both.kv_bytes == (check.kv_bytes or 0) + 2 * 1000 * 576 * 2


class TestCaches:
    def test_a_window_is_the_most(self, cards: dict[str, ModelCard]) -> None:
        one = 4 * 512 * 2
        for context in (500, 100_000):
            step = bytes_per_step(cards["gemma3"], ONE, 3, context)
            assert step.kv_bytes == 3 * one * (5 * context + 29 * min(context, 1024))
            assert (step.weights_bytes, step.total_bytes) == (None, None), "there are no weights"

    def test_a_state_is_constant(self, cards: dict[str, ModelCard]) -> None:
        state = 3 * (2 * 16 * 128 + 32 * 128) * 2 + 32 * 128 * 128 * 2
        for context in (0, 5000):
            step = bytes_per_step(cards["qwen3-next"], Parallel(tensor=2), 3, context)
            assert step.kv_bytes == 3 * (36 * state / 2 + 12 * context * 1 * 512 * 2)

    def test_sparse_attention_reads_what_it_chose(self, tmp_path: Path) -> None:
        config = {**DEEPSEEK_V3, "index_head_dim": 128, "index_topk": 2048}
        step = bytes_per_step(read_card(write_model(tmp_path / "m", config)), ONE, 1, 10_000)
        assert step.kv_bytes == 61 * (2048 * 576 * 2 + 10_000 * (128 + 4))

    def test_unknown(self, cards: dict[str, ModelCard]) -> None:
        step = bytes_per_step(replace(cards["tiny"], caches=None), ONE, 1, 100)
        assert step.weights_bytes is not None
        assert (step.kv_bytes, step.total_bytes) == (None, None)


class TestDecode:
    def test_a_pair(self, cards: dict[str, ModelCard]) -> None:
        """The target checks four tokens at once; the draft reads its weights three times, on one GPU of two."""
        target, draft = cards["llama-8b"], cards["tiny"]
        both = bytes_per_decode(target, draft, Parallel(tensor=2), 2, 100, 3, draft_parallel=ONE)
        check = bytes_per_step(target, Parallel(tensor=2), 2, 100, query_tokens=4)
        one = bytes_per_step(draft, ONE, 2, 100)
        assert both.weights_bytes == (check.weights_bytes or 0) + 3 * (one.weights_bytes or 0)
        assert both.kv_bytes == (check.kv_bytes or 0) + 3 * (one.kv_bytes or 0)

    def test_n_grams_cost_no_draft(self, cards: dict[str, ModelCard]) -> None:
        alone = bytes_per_decode(cards["tiny"], None, ONE, 1, 100, 0, draft_tokens=4)
        assert alone == bytes_per_step(cards["tiny"], ONE, 1, 100, query_tokens=5)

    def test_a_head_without_output_reads_that_of_the_target(self, cards: dict[str, ModelCard], tmp_path: Path) -> None:
        shapes: Shapes = {"fc.weight": ("BF16", (64, 128)), "layers.0.mlp.up_proj.weight": ("BF16", (160, 64))}
        draft = read_card(write_model(tmp_path / "head", {**TINY, "num_hidden_layers": 1}, shapes))
        both = bytes_per_decode(cards["tiny"], draft, Parallel(tensor=2), 1, 0, 1)
        check = bytes_per_step(cards["tiny"], Parallel(tensor=2), 1, 0, query_tokens=2)
        head = 64 * 128 * 2 + 160 * 64 * 2 / 2 + 320 * 64 * 2 / 2  # the projection is on both GPUs
        assert both.weights_bytes == (check.weights_bytes or 0) + head

    def test_a_head_that_ties_its_own_table_needs_no_other(self, cards: dict[str, ModelCard], tmp_path: Path) -> None:
        shapes: Shapes = {"fc.weight": ("BF16", (64, 128)), "embed_tokens.weight": ("BF16", (320, 64))}
        config = {**TINY, "num_hidden_layers": 1, "tie_word_embeddings": True}
        draft = read_card(write_model(tmp_path / "head", config, shapes))
        both = bytes_per_decode(cards["tiny"], draft, ONE, 1, 0, 1)
        check = bytes_per_step(cards["tiny"], ONE, 1, 0, query_tokens=2)
        assert both.weights_bytes == (check.weights_bytes or 0) + 64 * 128 * 2 + 320 * 64 * 2 + 64 * 2

    def test_unknown(self, cards: dict[str, ModelCard]) -> None:
        found = bytes_per_decode(cards["tiny"], cards["gemma3"], ONE, 1, 10, 2)
        assert found.weights_bytes is None
        assert bytes_per_decode(cards["tiny"], None, ONE, 1, 10, 2, own_draft_head=True).weights_bytes is None


@settings(max_examples=60, deadline=None)
@given(
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.integers(1, 6),
    batch=st.floats(0, 300),
    context=st.floats(0, 1e6),
    name=st.sampled_from(["llama-8b", "qwen3-moe", "deepseek", "tied"]),
)
def test_more_work_reads_no_less_and_more_gpus_no_more(
    tensor: int, pipeline: int, batch: float, context: float, name: str, cards: dict[str, ModelCard]
) -> None:
    def total(parallel: Parallel, batch: float, context: float) -> float:
        step: StepBytes = bytes_per_step(cards[name], parallel, batch, context)
        assert step.total_bytes is not None
        return step.total_bytes

    here = total(Parallel(tensor, pipeline), batch, context)
    assert 0 <= here <= total(ONE, batch, context) * (1 + 1e-9)
    assert total(Parallel(tensor, pipeline), batch + 1, context) >= here
    assert total(Parallel(tensor, pipeline), batch, context + 1) >= here
    assert total(Parallel(2 * tensor, pipeline), batch, context) <= here * (1 + 1e-9)
