"""Which variables reach a probe, pip, a converter or an engine."""

import pytest

from backend.clean_env import clean_environment


def test_what_misleads_is_left_out_and_all_else_stays() -> None:
    removed = {
        "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONWARNINGS", "PYTHONOPTIMIZE",
        "__PYVENV_LAUNCHER__", "VIRTUAL_ENV", "LD_PRELOAD", "QT_PLUGIN_PATH", "QT_QPA_PLATFORM",
        "PROMETHEUS_MULTIPROC_DIR", "SPECDECK_RUN_ID", "VLLM_API_KEY", "VLLM_PORT", "VLLM_TARGET_DEVICE",
    }  # fmt: skip
    kept = {
        "PATH", "HOME", "LD_LIBRARY_PATH", "HF_TOKEN", "HF_HOME", "CUDA_VISIBLE_DEVICES", "VLLM_LOGGING_LEVEL",
        "PIP_INDEX_URL", "https_proxy", "PYTHONNOUSERSITE", "PYTHONHASHSEED", "MY_PYTHONPATH",
    }  # fmt: skip
    assert clean_environment(dict.fromkeys(removed | kept, "x")) == dict.fromkeys(kept, "x")


def test_our_own_variables_by_default_and_further_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STAYS", "GOES", "GOES_TOO_1", "VLLM_PORT"):
        monkeypatch.setenv(name, "x")
    cleaned = clean_environment(also=("GOES", "GOES_TOO_*"))
    assert cleaned["STAYS"] == "x"
    assert not {"GOES", "GOES_TOO_1", "VLLM_PORT"} & set(cleaned)
