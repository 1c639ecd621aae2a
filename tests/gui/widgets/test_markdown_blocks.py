"""Cutting Markdown into pieces loses nothing and finds every code block."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gui.widgets import markdown_blocks
from gui.widgets.markdown_blocks import Code, Prose


def split(text: str) -> tuple[Prose | Code, ...]:
    return tuple(piece for piece in markdown_blocks.split(text) if piece is not None)


def _table(n_rows: int, n_columns: int, cell: str = "cell", lead: str = "") -> str:
    head = [[f"head {n}" for n in range(n_columns)], ["---"] * n_columns]
    rows = [[f"{cell} {number}"] * n_columns for number in range(n_rows)]
    return "\n".join(lead + "|" + "|".join(row) + "|" for row in (*head, *rows))


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


@pytest.mark.parametrize("lead", ["", "> ", "  "])
def test_a_long_table_is_cut_between_rows_below_its_heading_repeated(lead: str) -> None:
    lines = _table(50, 3, lead=lead).split("\n")
    pieces = split("\n".join(["before", *lines, "after"]))
    assert (pieces[0], pieces[-1]) == (Prose("before"), Prose("after"))
    assert len(pieces) == 2 + 4
    assert all(piece.text.split("\n")[:2] == lines[:2] for piece in pieces[1:-1])
    assert [line for piece in pieces[1:-1] for line in piece.text.split("\n")[2:]] == lines[2:]


def test_the_more_columns_the_fewer_rows() -> None:
    rows = [len(split(_table(60, n))[0].text.split("\n")) - 2 for n in (2, 6, 10)]
    assert rows[0] == 15 > rows[1] > rows[2] > 1


@pytest.mark.parametrize("table", [_table(3, 40), _table(1, 2, "word " * 2000)], ids=["wide", "long"])
def test_a_table_that_no_pane_can_hold_is_shown_as_it_was_written(table: str) -> None:
    assert split(f"a\n\n{table}\n\nb") == (Prose("a"), Code(table, "table"), Prose("b"))


@pytest.mark.parametrize("text", ["a | b", "a | b\n--- | --- | ---\n1 | 2", "a\n---\nb", "|a|\n|b|"])
def test_what_only_looks_like_a_table_stays_as_it_is(text: str) -> None:
    assert split(text) == (Prose(text),)


def test_a_table_and_what_follows_it_in_a_list_do_not_become_code() -> None:
    table = _table(2, 2)
    inside = "\n".join("    " + line for line in table.split("\n"))
    assert split(f"10. first\n\n{inside}\n\n    then\n") == (Prose("10. first"), Prose(table), Prose("then"))


def test_a_list_that_is_cut_inside_an_item_does_not_become_code() -> None:
    pieces = split("\n".join(f"{'    ' * (n % 4)}- item {n}" for n in range(300)))
    assert len(pieces) > 2
    assert all(not piece.text.startswith(" ") for piece in pieces)


def test_very_many_lines_are_cut_with_pauses() -> None:
    assert sum(piece is None for piece in markdown_blocks.split("\n" * 9000)) >= 9000 // 250


def test_a_line_without_end_is_cut_at_a_space() -> None:
    pieces = split("word " * 5000)
    assert len(pieces) > 1
    assert all(len(piece.text) <= 4001 for piece in pieces)
    assert "".join(piece.text for piece in pieces).replace("\n", "") == "word " * 5000


@given(
    st.lists(
        st.sampled_from(["text", "", "```", "```py", "  ~~~", "- a", "    b", "x" * 900, "y " * 2500, "|?|", "|-|"])
    )
)
def test_no_word_is_lost(lines: list[str]) -> None:
    text = "\n".join(lines)
    kept = "\n".join(piece.text for piece in split(text))
    for word in ("text", "x", "y ", "b"):
        assert kept.count(word) == text.count(word)
