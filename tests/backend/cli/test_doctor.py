"""`specdeck doctor` and words that others wrote."""

from collections.abc import Iterator

import pytest

from backend.cli import doctor


def test_brackets_in_foreign_words_are_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rows() -> Iterator[doctor._Row]:
        yield doctor._Row("Engine", doctor._Mark.TO_DO, "mine is broken: bad ELF header [/usr/lib/x.so] [bold]")

    monkeypatch.setattr(doctor, "_rows", rows)
    doctor.doctor()
    shown = capsys.readouterr().out
    assert "[/usr/lib/x.so] [bold]" in shown
    assert "to do" in shown
