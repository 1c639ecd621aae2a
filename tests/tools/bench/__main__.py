"""Measures one part after the other, and prints a table."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from tests.backend.desk.home import prepare_home
from tests.fakes import fake_nvml
from tests.fakes.fake_nvml import FakeNvml
from tests.tools.bench import attached, day, first, parts, window
from tests.tools.bench.figure import Figure
from tests.tools.stage import application, private_home

N_GPUS = 8


def main() -> int:
    """Measure everything, or the parts that are named; print each figure, and write all as JSON if that is wanted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement")
    parser.add_argument("--pairs", type=int, default=12, help="pairs with and without the panel, on the real engine")
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("parts", nargs="*", help="first, window, day, parts, attached; all of them by default")
    options = parser.parse_args()
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    measured: dict[str, Callable[[Path], Iterator[Figure]]] = {
        "first": first.figures,
        "window": lambda home: window.figures(home, options.seconds),
        "day": day.figures,
        "parts": lambda home: parts.figures(home, options.seconds),
    }
    wanted = options.parts or [*measured, "attached"]
    figures: list[Figure] = []

    def take(found: Iterator[Figure]) -> None:
        for figure in found:
            figures.append(figure)
            mark = {True: "met", False: "MISSED", None: ""}[figure.met]
            sys.stdout.write(f"{figure.what:<72} {figure.value:>22}   budget {figure.budget:<10} {mark}\n")
            sys.stdout.flush()

    with private_home() as home:
        prepare_home(home)
        nvml = FakeNvml(fake_nvml.build(home), home)
        nvml.say(f"gpus * {N_GPUS}")
        os.environ.update(nvml.environment)  # for the sampler, which is a process of its own
        application()
        for name, measure in measured.items():
            if name in wanted:
                take(measure(home))
    if "attached" in wanted:
        take(attached.figures(options.pairs))
    if options.json:
        options.json.write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
