"""Cutting Markdown into pieces loses nothing and finds every code block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.widgets.markdown_blocks import Code, Prose, split


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", ()),
        ("\n\n", ()),
        ("hello\n\nworld", (Prose("hello\n\nworld"),)),
        ("a\n```python\nx = 1\n\ny = 2\n```\nb", (Prose("a"), Code("x = 1\n\ny = 2", "python"), Prose("b"))),
        ("```\n```", (Code("", ""),)),
        ("````md\n```\ninner\n```\n````", (Code("```\ninner\n```", "md"),)),
        ("~~~ c++ title=x\n``` \n~~~", (Code("``` ", "c++"),)),
        ("```py\nnever closed", (Code("never closed", "py"),)),
        ("```inline``` code", (Prose("```inline``` code"),)),
        ("```{.rust}\nx\n```", (Code("x", "rust"),)),
        (
            "1. do\n   ```sh\n   ls\n     -l\n   ```\n   then\n2. next",
            (Prose("1. do"), Code("ls\n  -l", "sh"), Prose("then\n2. next")),
        ),
        ("    indented\n    code", (Prose("    indented\n    code"),)),
    ],
)
def test_pieces(text: str, pieces: tuple[Prose | Code, ...]) -> None:
    assert split(text) == pieces


def test_long_prose_is_cut_at_blank_lines_but_not_inside_a_list() -> None:
    paragraph = "word " * 200
    item = "- item " + "x " * 200 + "\n\n  more of it"
    pieces = split("\n\n".join([paragraph.strip()] * 6))
    assert len(pieces) == 3
    assert all(isinstance(piece, Prose) and not piece.text.startswith("\n") for piece in pieces)
    assert all(
        isinstance(piece, Prose) and piece.text.startswith("- item") for piece in split("\n\n".join([item] * 20))
    )


def test_a_line_without_end_is_cut_at_a_space() -> None:
    pieces = split("word " * 5000)
    assert len(pieces) > 1
    assert all(len(piece.text) <= 4001 for piece in pieces)
    assert "".join(piece.text for piece in pieces) == "word " * 5000


@given(st.lists(st.sampled_from(["text", "", "```", "```py", "  ~~~", "- a", "    b", "x" * 900, "y " * 2500])))
def test_no_word_is_lost(lines: list[str]) -> None:
    text = "\n".join(lines)
    kept = "\n".join(piece.text for piece in split(text))
    for word in ("text", "x", "y ", "b"):
        assert kept.count(word) == text.count(word)
