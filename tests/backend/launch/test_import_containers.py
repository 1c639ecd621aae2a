"""Containers and units become profiles: docker run, compose files, Kubernetes manifests and systemd units."""

import pytest

from backend.launch.change_list import ChangeKind
from backend.launch.import_text import ImportTextError
from tests.backend.launch.import_cases import change, imported, kind

DOCKER = """docker run --runtime nvidia --gpus '"device=0,GPU-7"' -it --name llm --ipc=host --shm-size 8g \\
  -v ~/.cache/huggingface:/root/.cache/huggingface -v /data/models:/models:ro --env "HF_TOKEN=$HF_TOKEN" \\
  -e VLLM_LOGGING_LEVEL=DEBUG -p 9000:8000 vllm/vllm-openai:v0.10.2 \\
  --model /models/llama --tokenizer /models --host 0.0.0.0 -tp 2 --speculative-config.model=/models/draft
"""


def test_docker_run() -> None:
    result = imported(DOCKER)
    profile = result.profile
    assert profile.target.model == "/data/models/llama"
    assert profile.target.tokenizer == "/data/models"
    assert profile.speculation.model == "/data/models/draft"
    assert profile.parallel.device_ids == ("0", "GPU-7")
    assert profile.env == {"VLLM_LOGGING_LEVEL": "DEBUG"}
    assert (profile.server.host, profile.server.port, profile.server.api_key) == ("127.0.0.1", 9000, False)
    assert kind(result, "--host 0.0.0.0") is ChangeKind.DROPPED
    assert change(result, "-p 9000:8000").to == "server.host and server.port = 127.0.0.1:9000"
    for given in ("--runtime", "-it", "--name", "--ipc", "--shm-size", "-v ~/.cache"):
        assert kind(result, given) is ChangeKind.DROPPED


@pytest.mark.parametrize(
    ("options", "arguments", "host", "port"),
    [
        ("-p 127.0.0.1:8080:8000", "", "127.0.0.1", 8080),
        ("-p 0.0.0.0:8080:8000", "", "0.0.0.0", 8080),
        ("-p8080:8000", "", "127.0.0.1", 8080),
        ("--publish=8080:9000", "--port 9000", "127.0.0.1", 8080),
        ("-p 8080:9000", "", "127.0.0.1", 8000),  # another port of the container
        ("--network host", "--host 0.0.0.0 --port 7", "0.0.0.0", 7),
        ("--net=host -p 1:2", "", "127.0.0.1", 8000),
    ],
)
def test_addresses_and_ports_of_containers(options: str, arguments: str, host: str, port: int) -> None:
    server = imported(f"docker run {options} vllm/vllm-openai --model a/b {arguments}").profile.server
    assert (server.host, server.port) == (host, port)
    assert server.api_key == (host == "0.0.0.0")


@pytest.mark.parametrize(
    "line",
    [
        "docker run vllm/vllm-openai --model a/b",
        "docker run vllm/vllm-openai a/b",
        "docker run vllm/vllm-openai serve a/b",
        "sudo docker run -d vllm/vllm-openai:latest --model a/b",
        "podman run -dit --device nvidia.com/gpu=all vllm/vllm-openai --model a/b",
        "docker container run --rm nvcr.io/nvidia/vllm:25.09 vllm serve a/b",
        "docker run --entrypoint vllm some/image serve a/b",
        'docker run --entrypoint "" some/vllm vllm serve a/b',
        "docker run some/image python3 -m vllm.entrypoints.openai.api_server --model a/b",
        'docker run --entrypoint /bin/bash some/image -c "pip install x && vllm serve a/b"',
    ],
)
def test_images_and_their_programs(line: str) -> None:
    assert imported(line).profile.target.model == "a/b"


def test_mounts() -> None:
    mounts = "-v /data/hub:/root/.cache/huggingface -v vol:/x --mount type=bind,src=/a,dst=/b"
    result = imported(f"docker run {mounts} vllm/vllm-openai /b/m")
    assert result.profile.env == {"HF_HOME": "/data/hub"}
    assert result.profile.target.model == "/a/m"
    assert kind(result, "-v vol:/x") is ChangeKind.REFUSED


def test_a_variable_of_the_shell_before_docker_is_not_the_containers() -> None:
    assert imported("A=1 docker run -e B=2 vllm/vllm-openai a/b").profile.env == {"B": "2"}


# ---- compose, Kubernetes, systemd ------------------------------------------------------------------------------------

COMPOSE = """x-shared: &shared
  NCCL_DEBUG: INFO
services:
  web: {image: nginx}
  llm:
    image: "vllm/vllm-openai:${TAG:-v0.32.0}"
    environment:
      <<: *shared
      HF_TOKEN: ${HF_TOKEN}
      EMPTY: ""
      PRICE: "5$$"
    ports: ["127.0.0.1:9000:8000", {target: 7, published: 8}]
    volumes:
      - ./models:/models
      - {type: bind, source: /cache, target: /c}
    command: ["/models/x", "--max-model-len", 32k, "--enforce-eager", --generation-config, '{"temperature": 0}']
    deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["1"], capabilities: [gpu]}]}}}
    restart: always
"""


def test_a_compose_file() -> None:
    result = imported(COMPOSE, folder="/srv/llm")
    profile = result.profile
    assert profile.target.model == "/srv/llm/models/x"
    assert (profile.target.max_model_len, profile.memory.enforce_eager) == (32000, True)
    assert profile.extra_args == ("--generation-config", '{"temperature": 0}')
    assert profile.env == {"NCCL_DEBUG": "INFO", "EMPTY": "", "PRICE": "5$"}
    assert (profile.server.host, profile.server.port) == ("127.0.0.1", 9000)
    assert profile.parallel.device_ids == ("1",)
    assert kind(result, "the service web") is kind(result, "restart") is ChangeKind.DROPPED


def test_a_command_in_one_text() -> None:
    text = "services:\n  v:\n    image: vllm/vllm-openai\n    command: >\n      --model a/b\n      --max-model-len 5\n"
    assert imported(text).profile.target.max_model_len == 5
    shell = "services:\n  v:\n    image: x/y\n    entrypoint: [bash, -c]\n    command: ['vllm serve a/b --port 5']\n"
    assert imported(shell).profile.target.model == "a/b"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("services:\n  a: [", 2, "no YAML"),
        ("services:\n  a:\n    image: vllm/vllm-openai\n    command: --model $M\n", 4, "$M is not set"),
        ("services:\n  a: {image: vllm/x, command: a/b}\n  b: {image: vllm/y}\n", 3, "second vLLM server"),
        ("services:\n  a: {image: vllm/x, command: '--model <name>'}\n", 2, "placeholder"),
        ("services:\n  a: {image: vllm/x, command: 'a/b --port'}\n", 2, "needs a value"),
        ("services:\n  a: {image: vllm/x, command: 'a/b $(id)'}\n", 2, "no variable"),
    ],
)
def test_errors_in_compose_files_point_at_the_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ImportTextError) as caught:
        imported(text)
    assert words in caught.value.message
    assert caught.value.line == line


def test_yaml_makes_no_objects_and_no_bombs() -> None:
    bomb = "a: &a [x, x]\nb: &b [*a, *a]\nservices:\n  v: {image: vllm/x, command: [a/b], labels: [*b, *b]}\n"
    assert imported(bomb).profile.target.model == "a/b"
    evil = "services:\n  v: {image: vllm/x, command: !!python/object/apply:os.system [a/b]}\n"
    assert imported(evil).profile.target.model == "a/b"
    for environment in ("&e {<<: *e, A: b}", "&e {<<: [*e, *e], A: b}"):
        endless = f"services:\n  v:\n    image: vllm/x\n    command: a/b\n    environment: {environment}\n"
        assert imported(endless).profile.env == {"A": "b"}
    levels = "".join(f"x{n}: &x{n} {{<<: [*x{n - 1}, *x{n - 1}]}}\n" for n in range(1, 40))
    wide = f"x0: &x0 {{A: b}}\n{levels}services:\n  v: {{image: vllm/x, command: a/b, environment: {{<<: *x39}}}}\n"
    assert imported(wide).profile.env == {"A": "b"}


MANIFEST = """apiVersion: apps/v1
kind: Deployment
metadata: {name: llm}
spec:
  template:
    spec:
      containers:
        - name: sidecar
          image: busybox
        - name: vllm
          image: vllm/vllm-openai:v0.32.0
          command: [vllm, serve]
          args: ["a/b", "--port=8001", "--chat-template", "$(TEMPLATE)", "--served-model-name", "$$(X)"]
          env:
            - {name: TEMPLATE, value: "{{ m }}"}
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}
          resources: {limits: {nvidia.com/gpu: 2}}
---
apiVersion: v1
kind: Service
metadata: {name: llm}
"""


def test_a_manifest() -> None:
    result = imported(MANIFEST)
    profile = result.profile
    assert (profile.target.model, profile.server.port, profile.server.host) == ("a/b", 8001, "127.0.0.1")
    assert (profile.server.chat_template, profile.target.served_model_name) == ("{{ m }}", "$(X)")
    assert profile.env == {"TEMPLATE": "{{ m }}"}
    assert kind(result, "Service llm") is kind(result, "resources") is ChangeKind.DROPPED
    with pytest.raises(ImportTextError, match=r"\$\(OTHER\) is not set"):
        imported(MANIFEST.replace("$(TEMPLATE)", "$(OTHER)"))


UNIT = """[Unit]
Description=llm
[Service]
WorkingDirectory=/srv
Environment=NCCL_DEBUG=INFO "MODEL=a/b" PRICE=5$$
# a remark
EnvironmentFile=-/etc/llm.env
ExecStart=/opt/v/bin/vllm serve ${MODEL} \\
  --port 8001 --chat-template "a \\"b\\" 50%% %h" \\
  --served-model-name 'x y'
Restart=always
"""


def test_a_unit() -> None:
    result = imported(UNIT)
    profile = result.profile
    assert (profile.target.model, profile.server.port) == ("a/b", 8001)
    assert profile.server.chat_template == 'a "b" 50% ~'
    assert profile.target.served_model_name == "x y"
    assert profile.env == {"NCCL_DEBUG": "INFO", "PRICE": "5$$", "MODEL": "a/b"}
    assert kind(result, "EnvironmentFile") is ChangeKind.REFUSED
    assert kind(result, "Restart") is ChangeKind.DROPPED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Service]\nExecStart=vllm serve $M\n", "$M is not set in this unit"),
        ("[Service]\nExecStart=vllm serve a/b --port %i\n", "known only to systemd"),
        ("[Service]\nExecStart=vllm serve 'a\n", "does not end"),
        ("[Service]\nExecStart=/bin/true\n", "starts no vLLM server"),
        ("[Service]\nExecStart=vllm serve a/b\nExecStart=vllm serve c/d\n", "second command"),
        ("[Service]\nType=exec\n", "no vLLM server"),
    ],
)
def test_units_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(ImportTextError) as caught:
        imported(text)
    assert words in caught.value.message
