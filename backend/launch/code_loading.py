"""The settings of a profile that load code or a path, which a person must allow one by one."""

import fnmatch
import re
from dataclasses import dataclass

from backend.launch.profile import Profile

CODE_LOADING_OPTIONS: dict[str, str] = {
    "--middleware": "runs Python code in the server",
    "--worker-cls": "replaces vLLM's worker by other Python code",
    "--worker-extension-cls": "adds Python code to vLLM's workers",
    "--scheduler-cls": "replaces vLLM's scheduler by other Python code",
    "--logits-processors": "runs Python code on every token",
    "--io-processor-plugin": "loads a plugin",
    "--tool-parser-plugin": "runs a Python file",
    "--reasoning-parser-plugin": "runs a Python file",
    "--tool-server": "lets the model call other servers",
    "--model-class-overrides": "replaces a model's Python class",
    "--kv-transfer-config": "can load a connector module",
    "--ec-transfer-config": "can load a connector module",
    "--ec-manager-config": "can load a Python class",
    "--kv-events-config": "can send events to another machine",
    "--weight-transfer-config": "lets another program replace the weights",
    "--compilation-config": "can name Python code for the compiler",
    "--additional-config": "is read by platform plugins",
    "--logging-config": "can name Python code that handles the log",
    "--log-config-file": "can name Python code that handles the log",
    "--model-loader-extra-config": "is read by loaders of weights",
    "--hf-config-path": "reads a config from another place",
    "--generation-config": "reads settings from another place",
    "--lora-modules": "loads adapters from other places",
    "--allowed-local-media-path": "lets requests read files of this machine",
    "--trust-request-chat-template": "lets requests bring their own templates",
    "--trust-request-mm-kwargs": "lets requests set the processor's arguments",
    "--download-dir": "writes to another folder",
}
"""Options in extra arguments that load code or open a path, with what they do."""

CODE_LOADING_VARIABLES: dict[str, str] = {
    "LD_*": "changes which system libraries are loaded",
    "PYTHON*": "changes which Python code is loaded",
    "PATH": "changes which programs are run",
    "VLLM_PLUGINS": "loads plugins",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "lets messages carry code",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "lets requests load adapters",
    "VLLM_LOGGING_CONFIG_PATH": "can name Python code that handles the log",
    "VLLM_*_SO_PATH": "loads a system library",
    "VLLM_SERVER_DEV_MODE": "opens the server's inner functions to requests",
    "HF_ENDPOINT": "takes models, and sends your hub token, to another server",
    "CC": "chooses the compiler",
    "CXX": "chooses the compiler",
    "CUDA_HOME": "chooses the compiler",
    "TRITON_*": "changes how kernels are compiled",
}
"""Variables (patterns with *) that load code or open a path, with what they do."""


@dataclass(frozen=True, slots=True)
class CodeLoading:
    """One setting that loads code or a path.

    Attributes:
        field: where it stands in the profile, for example "env.LD_PRELOAD".
        value: what it is set to.
        why: what it does, to be shown with the question.
    """

    field: str
    value: str
    why: str


def code_loading(profile: Profile) -> tuple[CodeLoading, ...]:
    """Return every setting of a profile that a person must allow by itself, in the profile's order."""
    found: list[CodeLoading] = []
    if profile.target.trust_remote_code:
        found.append(CodeLoading("target.trust_remote_code", "true", "runs Python code that comes with the model"))
    if profile.target.load_format not in {None, "auto", "safetensors"}:
        why = "may use a loader from a plugin or a format that can carry code"
        found.append(CodeLoading("target.load_format", str(profile.target.load_format), why))
    speculation = profile.speculation
    if speculation.method == "custom_class" or (speculation.method is None and _is_import_path(speculation.model)):
        found.append(CodeLoading("speculation.model", str(speculation.model), "runs other Python code as the draft"))
    if (backend := profile.parallel.distributed_executor_backend) and "." in backend:
        why = "replaces vLLM's executor by other Python code"
        found.append(CodeLoading("parallel.distributed_executor_backend", backend, why))
    template = profile.server.chat_template
    if template is not None and "{" not in template:
        found.append(CodeLoading("server.chat_template", template, "reads a template from a file"))
    for name, value in profile.env.items():
        for pattern, why in CODE_LOADING_VARIABLES.items():
            if fnmatch.fnmatchcase(name.upper(), pattern):
                found.append(CodeLoading(f"env.{name}", value, why))
                break
    found += _in_arguments(profile.extra_args)
    return tuple(found)


def _in_arguments(arguments: tuple[str, ...]) -> list[CodeLoading]:
    found = []
    for place, word in enumerate(arguments):
        # A dotted option sets one key of a JSON option: --kv-transfer-config.kv_connector X.
        flag = re.split(r"[=.]", word, maxsplit=1)[0].replace("_", "-")
        why = next((why for option, why in CODE_LOADING_OPTIONS.items() if _may_mean(flag, option)), None)
        if why is not None:
            following = arguments[place + 1] if place + 1 < len(arguments) else ""
            value = word.split("=", 1)[1] if "=" in word else "" if following.startswith("-") else following
            found.append(CodeLoading(f"extra_args {word.split('=', 1)[0]}", value, why))
    return found


def _may_mean(flag: str, option: str) -> bool:
    """Whether a word names the option: argparse also takes its beginning."""
    return flag == option or (len(flag) > len("--") and flag.startswith("--") and option.startswith(flag))


def _is_import_path(model: str | None) -> bool:
    """Whether vLLM would import a draft of no stated method as Python code."""
    parts = (model or "").split(".")
    return len(parts) > 1 and all(part.isidentifier() for part in parts)
