"""Arguments of a server sorted into options, as vLLM's own parser would: spellings, values, and rubbish."""

import pytest

from backend.launch import option_table, vllm_arguments
from backend.launch.import_text import ImportTextError, Source
from backend.launch.shell_scope import Scope
from backend.launch.shell_words import commands
from backend.launch.vllm_arguments import Arguments


def parse(text: str, version: str = "0.32.0") -> Arguments:
    source = Source.of(text)
    (command,) = commands(source, Scope())
    return vllm_arguments.parse(command.words, probe=option_table.probe_of(version), source=source)


def only(text: str, version: str = "0.32.0") -> tuple[str, list[str]]:
    """(flag, values) of the only option."""
    (option,) = parse(text, version).options
    return option.flag, [value.text for value in option.values]


@pytest.mark.parametrize(
    ("text", "flag", "values"),
    [
        ("--max-model-len 4", "--max-model-len", ["4"]),
        ("--max_model_len=4", "--max-model-len", ["4"]),  # A11: underscores are dashes
        ("--max-model 4", "--max-model-len", ["4"]),  # argparse takes beginnings
        ("--tensor 2", "--tensor-parallel-size", ["2"]),
        ("-tp 2", "--tensor-parallel-size", ["2"]),
        ("-tp=2", "--tensor-parallel-size", ["2"]),
        ("-pp 2", "--pipeline-parallel-size", ["2"]),
        ("-q awq", "--quantization", ["awq"]),
        ("-sc '{\"a\": 1}'", "--speculative-config", ['{"a": 1}']),
        ("--speculative_config '{}'", "--speculative-config", ["{}"]),
        ("-O3", "--optimization-level", ["3"]),
        ("-O 2", "--optimization-level", ["2"]),
        ("-O=1", "--optimization-level", ["1"]),
        ("-O '{\"mode\": 3}'", "--compilation-config", ['{"mode": 3}']),
        ("-cc '{\"mode\": 3}'", "--compilation-config", ['{"mode": 3}']),
        ("--served-model-name a b c", "--served-model-name", ["a", "b", "c"]),
        ("--max-model-len -1", "--max-model-len", ["-1"]),
        ("--hf-token", "--hf-token", []),
        ("--hf-token x", "--hf-token", ["x"]),
        ("--swap-space 4", "--swap-space", ["4"]),
        ("--device cpu", "--device", ["cpu"]),  # 0.32 would call it ambiguous; old guides mean the old option
        ("--enable-chunked-prefill True", "--enable-chunked-prefill", ["True"]),
        ("--never-heard x", "--never-heard", ["x"]),
        ("--never-heard=x", "--never-heard", ["x"]),
        ("--trust-request-chat-template", "--trust-request-chat-template", []),
    ],
)
def test_each_spelling_is_the_option_that_it_means(text: str, flag: str, values: list[str]) -> None:
    assert only(text) == (flag, values)


def test_json_that_a_shell_tore_apart_is_put_together() -> None:
    flag, values = only("-sc {method: mtp, num_speculative_tokens: 2}")  # A08, A13
    assert (flag, values) == ("--speculative-config", ["{method: mtp, num_speculative_tokens: 2}"])


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("--speculative-config.method ngram", ("method",), "ngram"),
        ("--speculative-config.method=ngram", ("method",), "ngram"),
        ("-sc.method ngram", ("method",), "ngram"),
        ("--hf-overrides.rope_parameters.rope_theta 1e6", ("rope_parameters", "rope_theta"), "1e6"),
        ("-cc.mode 3", ("mode",), "3"),
        ("-O.mode=3", ("mode",), "3"),
        ("-O.mode 3", ("mode",), "3"),
    ],
)
def test_dotted_options_name_a_key(text: str, keys: tuple[str, ...], value: str) -> None:
    (option,) = parse(text).options
    assert (option.keys, option.value) == (keys, value)


def test_a_plus_adds_to_a_list() -> None:
    (option,) = parse("--compilation-config.cudagraph_capture_sizes+ 1,2").options
    assert (option.keys, option.appends, option.value) == (("cudagraph_capture_sizes",), True, "1,2")


@pytest.mark.parametrize(
    "text", ["--no-enable-prefix-caching", "--no_enable_prefix_caching", "--enable-prefix-caching=false"]
)
def test_what_is_switched_off(text: str) -> None:
    (option,) = parse(text).options
    assert (option.flag, option.off) == ("--enable-prefix-caching", True)


def test_a_switch_takes_no_word_that_is_not_about_it() -> None:
    arguments = parse("--enforce-eager a/b --enable-lora")
    assert arguments.model is not None
    assert arguments.model.text == "a/b"
    assert [option.flag for option in arguments.options] == ["--enforce-eager", "--enable-lora"]


def test_beginnings_that_fit_several_options_are_told() -> None:
    (option,) = parse("--kv-cache 4").options
    assert option.problem.startswith("it could mean --kv-cache-dtype")
    assert option.known is None


def test_a_beginning_may_be_clear_in_one_release_only() -> None:
    assert only("--guided-decoding-b xgrammar", "0.10.2")[0] == "--guided-decoding-backend"
    (option,) = parse("--stream 2", "0.10.2").options  # 0.10.2 has none; the newest has --stream-interval
    assert option.flag == "--stream-interval"


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("a/b c/d", 5, "c/d belongs to no option, and the model is already a/b"),
        ("a/b --port 8000 then open it", 17, "then belongs to no option"),
        ("a/b --port", 5, "--port needs a value"),
        ("a/b --port --host x", 5, "--port needs a value"),
        ("a/b --served-model-name", 5, "needs a value"),
        ("a/b -O", 5, "-O needs a value"),
        ("a/b --enforce-eager=maybe", 21, "switch and takes no value"),
        ("a/b -- --port 1", 5, "lone --"),
        ("a/b --max-model-len ...", 21, "placeholder"),
        ('a/b --api-key "<your key>"', 15, "placeholder"),
        ("YOUR_MODEL --port 1", 1, "placeholder"),
        ("your-org/your-model --port 1", 1, "placeholder"),
        ("--model /path/to/model", 9, "placeholder"),
        ("--model [MODEL]", 9, "placeholder"),
        ("--model '{model}'", 10, "placeholder"),
    ],
)
def test_rubbish_and_placeholders_are_pointed_at(text: str, column: int, words: str) -> None:
    with pytest.raises(ImportTextError, match=words.replace("(", r"\(")) as caught:
        parse(text)
    assert caught.value.column - 1 <= column - 1 <= caught.value.column, "the mark stands at the word"
    assert caught.value.line == 1


@pytest.mark.parametrize("text", ["meta-llama/x", "/models/path", "a...b", "{}", "my-model", "[1, 2]"])
def test_what_is_no_placeholder(text: str) -> None:
    assert not vllm_arguments.is_placeholder(text)
