"""JSON that a shell or a printer damaged: what is read, and what is not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.launch.relaxed_json import RelaxedJsonError, loads

WANTED = {"method": "mtp", "num_speculative_tokens": 2}


@pytest.mark.parametrize(
    "text",
    [
        r"\{\"method\":\"mtp\",\"num_speculative_tokens\":2\}",  # A06: a wrapper quoted once more
        '{\\"method\\": \\"mtp\\", \\"num_speculative_tokens\\": 2}',
        """'{"method":"mtp","num_speculative_tokens":2}'""",  # A07: quotes inside the value
        '"{\\"method\\": \\"mtp\\", \\"num_speculative_tokens\\": 2}"',
        "{method: mtp, num_speculative_tokens: 2}",  # A08: the shell took the quotes
        "{method:mtp,num_speculative_tokens:2}",
        "{'method': 'mtp', 'num_speculative_tokens': 2}",  # A09: printed by Python
        '{"method": "mtp", "num_speculative_tokens": 2,}',
    ],
)
def test_damaged_json_is_read_as_it_was_meant(text: str) -> None:
    assert loads(text) == (WANTED, False)


def test_strict_json_is_told_from_it() -> None:
    assert loads(json.dumps(WANTED)) == (WANTED, True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (
            "{a: True, b: None, c: 1.5, d: -3, e: [1, 'x', {}]}",
            {"a": True, "b": None, "c": 1.5, "d": -3, "e": [1, "x", {}]},
        ),
        ("{model: org/name:latest}", {"model": "org/name:latest"}),
        ("{path: 'C:\\\\x'}", {"path": "C:\\x"}),
        ("[]", []),
    ],
)
def test_values_of_every_kind(text: str, value: Any) -> None:
    assert loads(text)[0] == value


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("{a: }", 4, "a value is missing"),
        ("{a 1}", 3, "colon"),
        ("{a: 1 b: 2}", 6, "comma"),
        ("{a: 'x}", 7, "does not end"),
        ("{a: 1} x", 7, "after the end"),
        ("{a: 1, a: 2}", 9, "twice"),
        ("", 0, "a value is missing"),
        ("[" * 60, 41, "too deeply"),
        ('{"a": "\\ud800"}', 0, "half a character"),
    ],
)
def test_what_makes_no_sense_is_told_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(RelaxedJsonError, match=words) as caught:
        loads(text)
    assert caught.value.position == position


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value, _ = loads(text)
    except RelaxedJsonError:
        return
    json.dumps(value)


plain = st.text(st.characters(categories=("L", "N")), min_size=1, max_size=6).filter(
    lambda word: (
        word not in {"True", "False", "None", "true", "false", "null"} and not word[0].isdigit() and word.isalpha()
    )
)


@given(st.dictionaries(plain, plain | st.integers(-999, 999) | st.booleans(), min_size=1, max_size=4))
def test_json_without_its_quotes_keeps_its_meaning(value: dict[str, Any]) -> None:
    assert loads(json.dumps(value, ensure_ascii=False).replace('"', ""))[0] == value
