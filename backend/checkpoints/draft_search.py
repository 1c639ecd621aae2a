"""Measures which layers a draft can do without: agreement with its target on text that the target wrote.

Run it with an engine environment's interpreter: `PYTHON draft_search.py TARGET_FOLDER [--out FILE]`. It is how
the list in `demo.py` was chosen; nothing else calls it.

Method: the target answers a dozen fixed prompts greedily. Then, beginning with all layers, each layer is left
out in turn, the one whose loss hurts least goes, and so on. "Agreement" is the share of answer tokens that the
shortened model predicts from the target's own text, which is the chance that greedy speculative decoding accepts a
drafted token. "Tokens per step" replays speculative decoding over those hits and misses. The expected ratio to no
speculation is tokens per step / (k * c + v): c is the cost of one draft step in target steps, a fixed part
(vocabulary head, bookkeeping) plus a part for each layer; v is the cost of the step that verifies.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = (
    "Write a short story about a lighthouse.",
    "What is the capital of France, and why is it famous?",
    "Explain how a bicycle stays upright.",
    "Give me three tips for sleeping better.",
    "Write a Python function that adds two numbers.",
    "How do I make a cup of tea?",
    "Describe the water cycle for a child.",
    "Write a polite e-mail that asks for a day off.",
    "What are the planets of the solar system?",
    "Why do leaves turn red in autumn?",
    "List five things to pack for a trip to the sea.",
    "Tell me about the history of the computer.",
)
# Never used for choosing, only for checking the choice.
CHECK_PROMPTS = (
    "What is photosynthesis?",
    "Write a poem about the rain.",
    "How does a car engine work?",
    "Give me a recipe for pancakes.",
    "What should I see in London?",
    "Explain what a database is.",
)


@dataclass(frozen=True, slots=True)
class Text:
    """Texts to score: ids (texts, positions), padded at the right; `scored[t]` = first and last answer position."""

    ids: torch.Tensor
    scored: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        left_out: layers without which the draft runs.
        agreement: share of answer tokens it predicts, 0..1.
        checked: the same on the texts that the choice never saw.
        best_k: number of draft tokens with the highest expected ratio; `tokens_per_step` and `ratio` are for it.
    """

    left_out: tuple[int, ...]
    agreement: float
    checked: float
    best_k: int
    tokens_per_step: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Cost:
    """Costs in target steps: one draft step is `fixed + layers * layer`, the step that verifies is `verify`."""

    fixed: float
    layer: float
    verify: float


class Scorer:
    """Runs a target with some of its layers over fixed texts."""

    def __init__(self, folder: Path, *, new_tokens: int) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._new_tokens = new_tokens
        self.n_layers = len(self._model.model.layers)

    def write(self, prompts: Sequence[str]) -> Text:
        """Let the whole target answer the prompts greedily."""
        rows: list[torch.Tensor] = []
        scored: list[tuple[int, int]] = []
        for prompt in prompts:
            chat = [{"role": "user", "content": prompt}]
            asked = self._tokenizer.apply_chat_template(
                chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
            )
            row = self._model.generate(**asked, max_new_tokens=self._new_tokens, do_sample=False)[0]
            rows.append(row)
            scored.append((asked["input_ids"].shape[1], len(row)))
        return Text(torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), tuple(scored))

    def hidden(self, text: Text, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the state before each of the layers, and behind the last one."""
        return self._run(text, layers, self._model.model.embed_tokens(text.ids))

    def hits(self, text: Text, layers: Sequence[int], state: torch.Tensor) -> tuple[list[list[bool]], float]:
        """Run these layers on `state`; return hit or miss for each answer token and the mean log-probability."""
        last = self._model.model.norm(self._run(text, layers, state)[-1])
        hits: list[list[bool]] = []
        likelihood, count = 0.0, 0
        for row, (begin, end) in enumerate(text.scored):
            logits = self._model.lm_head(last[row, begin - 1 : end - 1])
            wanted = text.ids[row, begin:end]
            hits.append((logits.argmax(-1) == wanted).tolist())
            likelihood -= float(torch.nn.functional.cross_entropy(logits, wanted, reduction="sum"))
            count += end - begin
        return hits, likelihood / count

    def _run(self, text: Text, layers: Sequence[int], state: torch.Tensor) -> list[torch.Tensor]:
        positions = torch.arange(text.ids.shape[1]).unsqueeze(0)
        rotary = self._model.model.rotary_emb(state, position_ids=positions)
        states = [state]
        for layer in layers:
            state = self._model.model.layers[layer](
                state, attention_mask=None, position_ids=positions, position_embeddings=rotary
            )
            states.append(state)
        return states


def agreement(hits: Sequence[Sequence[bool]]) -> float:
    """Return the share of hits over all texts."""
    return sum(map(sum, hits)) / sum(map(len, hits))


def tokens_per_step(hits: Sequence[Sequence[bool]], k: int) -> float:
    """Replay greedy speculative decoding with k draft tokens; return tokens for each target step."""
    tokens = steps = 0
    for row in hits:
        at = 0
        while at < len(row):
            run = 0
            while run < k and at + run < len(row) and row[at + run]:
                run += 1
            at += run + 1
            steps += 1
        tokens += len(row)
    return tokens / steps


def expected(hits: Sequence[Sequence[bool]], n_layers: int, cost: Cost, ks: Sequence[int]) -> tuple[int, float, float]:
    """Return the best k with its tokens per step and its expected ratio to no speculation."""
    options = []
    for k in ks:
        length = tokens_per_step(hits, k)
        options.append((length / (k * (cost.fixed + n_layers * cost.layer) + cost.verify), k, length))
    ratio, k, length = max(options)
    return k, length, ratio


def search(scorer: Scorer, *, cost: Cost, ks: Sequence[int], keep: int, by_likelihood: bool) -> list[Row]:
    """Leave out one layer after another until `keep` are left, printing a line for each.

    The one that goes is the one without which the agreement stays highest, or the likelihood of the target's text.
    """
    text, check = scorer.write(PROMPTS), scorer.write(CHECK_PROMPTS)
    kept = list(range(scorer.n_layers))
    rows: list[Row] = []
    while len(kept) > keep:
        states = scorer.hidden(text, kept)
        trials = []
        for index, layer in enumerate(kept):
            hits, likelihood = scorer.hits(text, kept[index + 1 :], states[index])
            share = agreement(hits)
            trials.append(((likelihood, share) if by_likelihood else (share, likelihood), layer, hits))
        _, worst, hits = max(trials)
        kept.remove(worst)
        begin = scorer.hidden(check, ())[0]
        checked = agreement(scorer.hits(check, kept, begin)[0])
        best_k, length, ratio = expected(hits, len(kept), cost, ks)
        left_out = tuple(layer for layer in range(scorer.n_layers) if layer not in kept)
        rows.append(Row(left_out, agreement(hits), checked, best_k, length, ratio))
        print(_line(rows[-1], worst), flush=True)
    return rows


def measure(scorer: Scorer, left_out: Sequence[int], *, cost: Cost, ks: Sequence[int]) -> Row:
    """Return the row of one given list."""
    kept = [layer for layer in range(scorer.n_layers) if layer not in left_out]
    text, check = scorer.write(PROMPTS), scorer.write(CHECK_PROMPTS)
    hits, _ = scorer.hits(text, kept, scorer.hidden(text, ())[0])
    checked, _ = scorer.hits(check, kept, scorer.hidden(check, ())[0])
    best_k, length, ratio = expected(hits, len(kept), cost, ks)
    return Row(tuple(left_out), agreement(hits), agreement(checked), best_k, length, ratio)


def _line(row: Row, layer: int | None) -> str:
    return (
        f"{len(row.left_out):4}  {'' if layer is None else layer:>5}  {row.agreement:9.1%}  {row.checked:7.1%}  "
        f"{row.best_k:6}  {row.tokens_per_step:11.2f}  {row.ratio:5.2f}  {','.join(map(str, row.left_out))}"
    )


def main(arguments: Sequence[str]) -> int:
    """Search, or with --layers measure one list, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", help="measure this list only, like 3,4,5")
    parser.add_argument("--by-likelihood", action="store_true", help="choose by the likelihood of the text")
    parser.add_argument("--keep", type=int, default=8, help="stop when so many layers are left")
    parser.add_argument("--new-tokens", type=int, default=64, help="length of each answer")
    parser.add_argument("--fixed-cost", type=float, default=0.08, help="of a draft step, in target steps")
    parser.add_argument("--layer-cost", type=float, default=0.025, help="of a draft step, for each layer")
    parser.add_argument("--verify-cost", type=float, default=1.4, help="of a verifying step, in target steps")
    parser.add_argument("--out", type=Path, help="write the rows here as JSON")
    options = parser.parse_args(arguments)
    cost = Cost(options.fixed_cost, options.layer_cost, options.verify_cost)
    ks = range(1, 6)
    torch.set_grad_enabled(False)
    scorer = Scorer(options.target, new_tokens=options.new_tokens)
    print(" out  layer  agreement  checked  best k  tokens/step  ratio  left out", flush=True)
    if options.layers is not None:
        left_out = [int(number) for number in options.layers.split(",") if number]
        rows = [measure(scorer, left_out, cost=cost, ks=ks)]
        print(_line(rows[0], None))
    else:
        rows = search(scorer, cost=cost, ks=ks, keep=options.keep, by_likelihood=options.by_likelihood)
    if options.out:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
