"""Exports start the same server: they are imported again and come to the same command, and hold no secret."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from backend.errors import ProfileError, UsageError
from backend.launch import engine_options, exporters, importers, kept_secrets, option_table, profile_toml
from backend.launch.command import build
from backend.launch.exporters import ExportKind
from backend.launch.profile import Profile
from backend.launch.profile_store import ProfileStore
from backend.launch.vllm_arguments import is_placeholder
from tests.backend.launch.profile_cases import CUDA, environment, profiles, recorded_probe

MODELS = Path("/data/models")
PROBE = recorded_probe(**CUDA)
KINDS = list(ExportKind)


def profile(text: str) -> Profile:
    return profile_toml.loads(f'target.model = "a/b"\n{text}', name="mine")


def exported(wanted: Profile, kind: ExportKind, *, nodes: int = 1) -> str:
    return exporters.export(wanted, kind, probe=PROBE, models=MODELS, nodes=nodes)


def meaning(wanted: Profile) -> tuple[list[str], dict[str, str]]:
    """The model with its options in order of their names, and the engine's variables."""
    launch = build(
        wanted,
        environment=environment(**CUDA),
        run_id="r",
        temp_dir=Path("/tmp/r"),
        models=MODELS,
        api_key="k" if wanted.server.api_key else None,
        offline=False,
        base_env={},
    )
    groups: list[list[str]] = []
    for word in launch.argv[4:]:
        if not groups or word.startswith("--"):
            groups.append([])
        groups[-1].append(word)
    return [*groups[0], *(str(group) for group in sorted(groups[1:]))], dict(launch.env)


def again(text: str) -> Profile:
    return importers.from_text(text, probe=PROBE, name="mine").profile


# ---- the round trip --------------------------------------------------------------------------------------------------

# Options without a field, as they are written by hand.
EXTRA: list[tuple[str, ...]] = [
    ("--uvicorn-log-level", "warning"),
    ("--enable-lora",),
    ("--no-enable-lora",),
    ("--allowed-origins", '["*"]'),
    ("--override-generation-config", '{"temperature": 0.5, "x": "$(no) `shell` %h {{ m }}"}'),
    ("--cudagraph-capture-sizes", "1", "2"),
    ("--response-role", 'it\'s "me" \\ $HOME'),
    ("--root-path", "/p"),
    ("--chat-template-content-format", "string"),
    ("--compilation-config", '{"mode":3}'),
]


def _startable(wanted: Profile) -> bool:
    """Whether this vLLM takes a profile, and no value only stands for one that is missing."""
    _, problems = engine_options.build_options(wanted, probe=PROBE, resolve=str)
    texts = [str(value) for value in [*_texts(wanted.model_dump(mode="json"))]]
    return not problems and not any(is_placeholder(text) for text in texts)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return [value] if isinstance(value, str) else []


@st.composite
def startable(draw: st.DrawFn) -> Profile:
    """Profiles with values of every kind that this vLLM starts with."""
    whole = draw(profiles)
    choices = {option.flags[0]: option.choices for option in PROBE.options if option.choices and option.flags}
    document = json.loads(profile_to_json(whole))
    for field in exporters_fields():
        table, _, name = field.path.partition(".")
        if field.flag in choices and document.get(table, {}).get(name) is not None:
            document[table][name] = draw(st.sampled_from(choices[field.flag] or [""]))
    document["speculation"] = draw(
        st.sampled_from(
            [
                {},
                {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4},
                {"method": "draft_model", "model": "c/d", "num_speculative_tokens": 3, "use_heterogeneous_vocab": True},
                {
                    "method": "eagle3",
                    "model": "~/h/e",
                    "num_speculative_tokens": 2,
                    "other": {"attention_backend": "X"},
                },
                {"method": "mtp", "num_speculative_tokens": 1},
            ]
        )
    )
    document["server"] |= {
        # A list of its own, since an import without one gets Specdeck's.
        "quiet_endpoints": draw(st.lists(st.sampled_from(["/health", "/metrics", "/a b"]), min_size=1, unique=True)),
        "host": draw(st.sampled_from(["127.0.0.1", "0.0.0.0", "192.168.1.5", "::1"])),
        "api_key": True,
        "per_request_spec_metrics": draw(st.sampled_from([None, "none", "summary", "detailed"])),
    }
    document["parallel"]["device_ids"] = draw(st.sampled_from([None, ["0"], ["1", "0"], ["GPU-aa-1", "GPU-bb-2"]]))
    extra = draw(st.lists(st.sampled_from(EXTRA), max_size=3, unique_by=lambda one: one[0].replace("--no-", "--")))
    document["extra_args"] = [word for group in extra for word in group]
    document.pop("measured", None)
    wanted = Profile.model_validate({**document, "name": "mine"})
    assume(_startable(wanted))
    return wanted


def profile_to_json(wanted: Profile) -> str:
    return json.dumps(wanted.model_dump(mode="json", by_alias=True, exclude_none=True))


def exporters_fields() -> list[Any]:
    from backend.launch.profile import FIELDS

    return [field for field in FIELDS if field.flag]


_LESS = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large]


def _comes_back(kind: ExportKind, wanted: Profile) -> None:
    if kind is ExportKind.KUBERNETES:  # a cluster has addresses and GPUs of its own
        server = wanted.server.model_copy(update={"host": "127.0.0.1"})
        parallel = wanted.parallel.model_copy(update={"device_ids": None})
        wanted = wanted.model_copy(update={"server": server, "parallel": parallel})
    text = exported(wanted, kind)
    assert meaning(again(text)) == meaning(wanted), text


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None, suppress_health_check=_LESS)
@given(wanted=startable())
def test_an_export_that_is_imported_means_the_same(kind: ExportKind, wanted: Profile) -> None:
    _comes_back(kind, wanted)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=400, deadline=None, suppress_health_check=_LESS)
@given(wanted=startable())
def test_many_exports_that_are_imported_mean_the_same(kind: ExportKind, wanted: Profile) -> None:
    _comes_back(kind, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [stored.name for stored in ProfileStore().list()])
def test_every_preset_comes_back(name: str, kind: ExportKind) -> None:
    preset = ProfileStore().get(name)
    assert meaning(again(exported(preset, kind))) == meaning(preset)


# ---- what they say ---------------------------------------------------------------------------------------------------


def test_the_shell_runs_what_was_meant(tmp_path: Path) -> None:
    """The text goes through a real shell, with a `vllm` that writes down its words."""
    wanted = profile(
        "server.chat_template = '''it's \"$HOME\" `id` $(id)\nline two'''\n"
        'server.host = "0.0.0.0"\nserver.api_key = true\n'
        'env = { A_B = "x $y \'z\'" }\nparallel.device_ids = ["GPU-1", "GPU-2"]'
    )
    recorder = tmp_path / "vllm"
    recorder.write_text('#!/bin/sh\nprintf "%s\\0" "$CUDA_VISIBLE_DEVICES" "$A_B" "$VLLM_API_KEY" "$@"\n')
    recorder.chmod(0o755)
    script = exported(wanted, ExportKind.SHELL)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "VLLM_API_KEY": "geheim"}
    done = subprocess.run(["sh"], input=script, env=env, capture_output=True, text=True, check=True)
    devices, own, key, *words = done.stdout.split("\0")[:-1]
    assert (devices, own, key) == ("GPU-1,GPU-2", "x $y 'z'", "geheim")
    assert words[:2] == ["serve", "a/b"]
    assert words[words.index("--chat-template") + 1] == 'it\'s "$HOME" `id` $(id)\nline two'
    without = subprocess.run(
        ["sh"], input=script, env={"PATH": env["PATH"]}, capture_output=True, text=True, check=False
    )
    assert without.returncode != 0
    assert "VLLM_API_KEY" in without.stderr


def test_docker_run_for_a_model_in_a_folder() -> None:
    text = exported(
        profile_toml.loads(
            'target.model = "/srv/m"\nserver = { chat_template = "/srv/t.jinja", port = 9 }\n'
            'parallel.device_ids = ["0"]',
            name="x",
        ),
        ExportKind.DOCKER,
    )
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    assert words[words.index("--gpus") + 1] == '"device=0"'
    assert words[words.index("-p") + 1] == "127.0.0.1:9:9"
    volumes = [words[at + 1] for at, word in enumerate(words) if word == "-v"]
    assert volumes[1:] == ["/srv/m:/srv/m", "/srv/t.jinja:/srv/t.jinja"]
    image = words.index("vllm/vllm-openai:v0.32.0")
    assert words[image + 1 : image + 3] == ["serve", "/srv/m"]
    assert words[words.index("--host") + 1] == "0.0.0.0"


def test_compose_is_yaml_with_the_gpus_and_without_aliases() -> None:
    wanted = profile('parallel.tensor_parallel_size = 2\nserver.api_key = true\nenv = { P = "5$x" }')
    text = exported(wanted, ExportKind.COMPOSE)
    (service,) = yaml.safe_load(text)["services"].values()
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2
    assert service["environment"] == {"HF_TOKEN": None, "VLLM_API_KEY": None, "P": "5$$x"}
    assert service["ports"] == ["127.0.0.1:8000:8000"]
    assert "&id" not in text


def test_a_deployment_and_its_service() -> None:
    wanted = profile("parallel.tensor_parallel_size = 4\nserver.api_key = true\nserver.port = 9000")
    deployment, service = yaml.safe_load_all(exported(wanted, ExportKind.KUBERNETES))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 4}
    assert container["command"] == ["vllm", "serve"]
    assert {one["name"]: "valueFrom" in one for one in container["env"]} == {"HF_TOKEN": True, "VLLM_API_KEY": True}
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": 9000}
    assert service["spec"]["selector"] == deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["ports"] == [{"port": 9000, "targetPort": 9000}]


def test_several_nodes_are_a_leader_and_its_workers() -> None:
    wanted = profile("parallel = { tensor_parallel_size = 8, pipeline_parallel_size = 2 }")
    lws, service = yaml.safe_load_all(exported(wanted, ExportKind.KUBERNETES, nodes=2))
    assert (lws["kind"], lws["apiVersion"]) == ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")
    template = lws["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    leader = template["leaderTemplate"]["spec"]["containers"][0]
    worker = template["workerTemplate"]["spec"]["containers"][0]
    assert leader["args"][-6:] == ["--nnodes", "2", "--master-addr", "$(LWS_LEADER_ADDRESS)", "--node-rank", "0"]
    assert worker["args"][-3:] == ["--node-rank", "$(LWS_WORKER_INDEX)", "--headless"]
    assert leader["resources"] == worker["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert "readinessProbe" not in worker
    assert service["spec"]["selector"]["role"] == "leader"


def test_a_systemd_unit_has_its_parts() -> None:
    text = exported(profile('server.api_key = true\nenv = { A = "x %h $y" }'), ExportKind.SYSTEMD)
    assert 'Environment="A=x %%h $y"' in text
    template = profile('server.chat_template = "${X} 5$$ $Y"')
    assert '--chat-template "$${X} 5$$$$ $$Y"' in exported(template, ExportKind.SYSTEMD)
    assert meaning(again(exported(template, ExportKind.SYSTEMD))) == meaning(template)
    assert "PassEnvironment=VLLM_API_KEY" in text
    assert "\nExecStart=%h/.local/bin/vllm serve a/b \\\n" in text
    assert text.rstrip().endswith("WantedBy=default.target")


@pytest.mark.parametrize("kind", KINDS)
def test_kept_secrets_are_in_no_export(kind: ExportKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_geheim-1")
    kept_secrets.keep("mine", {"VLLM_API_KEY": "geheim-2", "HF_TOKEN": "geheim-3"})
    assert "geheim" not in exported(profile("server.api_key = true"), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_for_an_older_release_is_checked_against_it(kind: ExportKind) -> None:
    old = option_table.probe_of("0.10.2")
    with pytest.raises(ProfileError, match=r"0\.10\.2 has no option --enable-per-request-metrics"):
        exporters.export(profile("server.per_request_metrics = true"), kind, probe=old, models=MODELS)
    assert "0.10.2" in exporters.export(profile(""), kind, probe=old, models=MODELS)


def test_what_cannot_be_exported() -> None:
    with pytest.raises(UsageError, match="Only Kubernetes"):
        exported(profile(""), ExportKind.DOCKER, nodes=2)
    with pytest.raises(UsageError, match="cannot spread"):
        exporters.export(
            profile(""), ExportKind.KUBERNETES, probe=option_table.probe_of("0.10.2"), models=MODELS, nodes=2
        )
    with pytest.raises(ProfileError, match="no API key"):
        exported(profile('server.host = "0.0.0.0"'), ExportKind.SHELL)
    with pytest.raises(ProfileError, match=r"0\.17\.0 knows GPUs by number only"):
        exporters.export(
            profile('parallel.device_ids = ["MIG-1"]'),
            ExportKind.SHELL,
            probe=option_table.probe_of("0.17.0"),
            models=MODELS,
        )
