"""The fake engine's /metrics page: a recorded page of vLLM 0.32 whose values advance."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

_TEMPLATE = Path(__file__).resolve().parent.parent / "data/metrics/v0.32_spec_idle_fresh.txt"
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(slots=True)
class _Sample:
    name: str
    labels: dict[str, str]
    text: str
    value: float


class MetricsPage:
    """Counters, gauges and histograms under vLLM's names, rendered in the recorded shape and order."""

    def __init__(self, *, model: str, engines: int, speculation: bool) -> None:
        self._rows: list[str | _Sample] = []
        self._samples: dict[str, list[_Sample]] = {}
        now = time.time()
        for line in _TEMPLATE.read_text(encoding="utf-8").splitlines():
            if "spec_decode" in line and not speculation:
                continue
            match = _SAMPLE.match(line)
            if line.startswith("#") or match is None:
                self._rows.append(line)
                continue
            name, labels, value = match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])
            if name.endswith("_created") or name == "process_start_time_seconds":
                value = now
            elif name.startswith("http_"):
                value = 0.0
            for engine in range(engines if "engine" in labels else 1):
                text = f"{name}{{{match[2]}}}" if match[2] else name
                text = text.replace('engine="0"', f'engine="{engine}"').replace(
                    'model_name="tiny"', f'model_name="{model}"'
                )
                sample = _Sample(name, dict(_LABEL.findall(text)), text, value)
                self._rows.append(sample)
                self._samples.setdefault(name, []).append(sample)

    def _select(self, name: str, labels: dict[str, str]) -> list[_Sample]:
        return [
            sample
            for sample in self._samples.get(name, [])
            if all(sample.labels.get(key) == value for key, value in labels.items())
        ]

    def add(self, name: str, amount: float, **labels: str) -> None:
        """Advance a counter; a name that this page lacks is ignored."""
        for sample in self._select(name, labels):
            sample.value += amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        for sample in self._select(name, labels):
            sample.value = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put one observation into a histogram."""
        for sample in self._select(f"{name}_bucket", labels):
            if value <= float(sample.labels["le"]):
                sample.value += 1
        self.add(f"{name}_count", 1, **labels)
        self.add(f"{name}_sum", value, **labels)

    def total(self, name: str) -> float:
        """Sum of one name over all its labels."""
        return sum(sample.value for sample in self._samples.get(name, []))

    def render(self) -> str:
        """The page as text."""
        rows = (row if isinstance(row, str) else f"{row.text} {row.value!r}" for row in self._rows)
        return "\n".join(rows) + "\n"
