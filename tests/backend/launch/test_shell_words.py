"""Words of a shell text: what a shell would make of them, and what is refused because it would have to be run."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.launch.import_text import ImportTextError, Source, Word
from backend.launch.shell_scope import Scope
from backend.launch.shell_words import commands


def words(text: str, **values: str) -> list[str]:
    """The words of the only command of a text."""
    scope = Scope(values=dict(values))
    (command,) = commands(Source.of(text), scope)
    return [word.text for word in command.words]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a b", ["a", "b"]),
        ("a \\\n  b \\\n", ["a", "b"]),
        ("a \\  \n  b", ["a", "b"]),  # a space behind the backslash, as copied from a page
        ("a\tb # c 'd", ["a", "b"]),
        ("a#b", ["a#b"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("'a'\"b\"c", ["abc"]),
        ('"a\\"b\\\\c\\d"', ['a"b\\c\\d']),
        ('a\\ b\\"', ['a b"']),
        ("'a\nb'", ["a\nb"]),
        ('"a\\\nb"', ["ab"]),
        ("$'a\\tb\\x41\\''", ["a\tbA'"]),
        ("''", [""]),
        ('{"a":1}', ["{a:1}"]),
        ("'{\"a\": 1}'", ['{"a": 1}']),
        ("a\u00a0b", ["a", "b"]),
        ("*.txt ~/x", ["*.txt", "~/x"]),
    ],
)
def test_quotes_and_continuations(text: str, result: list[str]) -> None:
    assert words(text) == result


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("$A", ["x", "y"]),
        ('"$A"', ["x y"]),
        ("p$A", ["px", "y"]),
        ("${A}q", ["x", "yq"]),
        ('"${A}q"', ["x yq"]),
        ("'$A'", ["$A"]),
        ("\\$A", ["$A"]),
        ("${B:-z}", ["z"]),
        ('"${B:-z w}"', ["z w"]),
        ("${A:-z}", ["x", "y"]),
        ("a ${B-}", ["a"]),
        ("${A:+yes}", ["yes"]),
        ('"$HOME/m"', ["~/m"]),
        ('a "$@" b', ["a", "b"]),
        ("$", ["$"]),
    ],
)
def test_variables(text: str, result: list[str]) -> None:
    assert words(text, A="x y") == result


def test_lists_are_followed() -> None:
    scope = Scope()
    for command in commands(Source.of('ARGS=(--a "b c" \'d\')\nrun "${ARGS[@]}" ${ARGS[@]}'), scope):
        for assignment in command.assignments:
            scope.values[assignment.name] = assignment.value
        found = [word.text for word in command.words]
    assert found == ["run", "--a", "b c", "d", "--a", "b c", "d"]


def test_commands_are_told_apart() -> None:
    text = "set -e; A=1 B='2' run x > out.log 2>&1 &\nwait && echo ok | tee log || exit 1"
    found = list(commands(Source.of(text), Scope()))
    assert [[word.text for word in one.words] for one in found] == [
        ["set", "-e"],
        ["run", "x"],
        ["wait"],
        ["echo", "ok"],
        ["tee", "log"],
        ["exit", "1"],
    ]
    assert [(one.name, one.value) for one in found[1].assignments] == [("A", "1"), ("B", "2")]
    assert [word.text for word in found[1].redirects] == ["> out.log", "2>&1"]
    assert found[1].ending == "&"


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("vllm serve $MODEL", 1, 12, r"\$MODEL is not set"),
        ("a\n  b ${MODEL}", 2, 5, r"\$MODEL is not set"),
        ("a $(hostname)", 1, 3, "never run"),
        ('a "x $(hostname)"', 1, 6, "never run"),
        ("a $((1+2))", 1, 3, "never run"),
        ("a `hostname`", 1, 3, "never run"),
        ('a "`hostname`"', 1, 4, "never run"),
        ("a <(b)", 1, 3, "never run"),
        ("a <<EOF\nx\nEOF", 1, 3, "fed to a command"),
        ("a 'b", 1, 3, "does not end"),
        ('a "b', 1, 3, "does not end"),
        ("a $'b", 1, 3, "does not end"),
        ("A=(b", 1, 3, "does not end"),
        ("a ${B%c}", 1, 3, "not followed"),
        ("a ${#B}", 1, 3, "not followed"),
        ("a $1", 1, 3, "while a script runs"),
        ("f() { x; }", 1, 2, "function"),
        ("(a b)", 1, 1, "group"),
        ("a --model <your-model> -b", 1, 11, "placeholder"),
        ("a \u2013\u2013model x", 1, 3, "typographic dash"),
        ("a --model \u201cx\u201d", 1, 11, "typographic quote"),
        ("a >", 1, 3, "name of a file"),
        ("a ${B:?say B}", 1, 3, r"\$B is not set"),
        ('"${B[@]}"', 1, 2, "list B is not set"),
    ],
)
def test_errors_point_at_the_place(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(ImportTextError, match=words) as caught:
        list(commands(Source.of(text), Scope()))
    assert (caught.value.line, caught.value.column) == (line, column)
    shown = caught.value.message.splitlines()
    assert shown[2].index("^") == column - 1 + 2, "the mark stands below the place"
    assert shown[1][2:].startswith(text.splitlines()[line - 1][:20].rstrip())


def test_a_secret_that_only_the_shell_knows_is_no_error() -> None:
    (command,) = commands(Source.of('run HF_TOKEN=$HF_TOKEN "$HF_TOKEN" PATH=/x:$PATH'), Scope())
    assert [(word.text, word.from_env) for word in command.words] == [
        ("run", ""),
        ("HF_TOKEN=", "HF_TOKEN"),
        ("", "HF_TOKEN"),
        ("PATH=/x:", "PATH"),
    ]


def _assign_all(text: str) -> None:
    scope = Scope(values={"A": "xx", "B": (Word("x"), Word("y"))})
    for command in commands(Source.of(text), scope):
        for one in command.assignments:
            old = scope.values[one.name] if one.adds else None
            both = (*old, *one.value) if isinstance(old, tuple) and isinstance(one.value, tuple) else one.value
            scope.values[one.name] = both


@pytest.mark.parametrize(
    "text",
    [
        'A="$A$A"\n' * 60,
        "A=$A$A$A\n" * 60,
        'B+=("${B[@]}" "${B[@]}")\n' * 60,
        'B=("${B[@]}" "${B[@]}")\n' * 60,
        'A="$A$A"\n' * 13 + f"run {'$A' * 9000}",
    ],
)
def test_values_that_double_do_not_grow_without_end(text: str) -> None:
    with pytest.raises(ImportTextError, match="grows too long"):
        _assign_all(text)


def test_a_windows_text_reads_like_any_other() -> None:
    (command,) = commands(Source.of("\ufeffa \\\r\n  b\r\n"), Scope())
    assert [(word.text, word.line, word.column) for word in command.words] == [("a", 1, 1), ("b", 2, 3)]


texts = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters="\n\t"), max_size=20)


@given(st.lists(texts, min_size=1, max_size=5))
def test_what_a_shell_would_be_told_comes_back(parts: list[str]) -> None:
    assert words(f"run {shlex.join(parts)}") == ["run", *parts]


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_at_a_place(text: str) -> None:
    line = 1
    try:
        for command in commands(Source.of(text), Scope()):
            line = command.place.line
    except ImportTextError as error:
        line = error.line
    assert line >= 1
