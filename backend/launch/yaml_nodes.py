"""YAML as nodes that know their place: values stay the text that stands there, and errors can point at it."""

from collections.abc import Iterator

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from backend.launch.import_text import ImportTextError, Source, Word


def documents(source: Source) -> list[Node]:
    """Return the documents of a text; values are not converted, and no tag makes an object.

    Raises:
        ImportTextError: it is no YAML.
    """
    try:
        return [node for node in yaml.compose_all(source.text, Loader=yaml.SafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        if mark is None:
            raise ImportTextError(f"This is no YAML: {error.problem}.") from error
        word = Word("", mark.line + 1, mark.column + 1, 1)
        source.fail_at(word, f"this is no YAML: {error.problem}.", "Mend it there.")
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ImportTextError("This is no YAML that Specdeck can read.", str(error)[:200]) from error


def entries(node: Node | None, *, merged: set[int] | None = None) -> Iterator[tuple[str, Node, Node]]:
    """Yield (key, node of the key, node of the value) of a table; those of tables merged by << come first.

    Args:
        node: the table.
        merged: tables that were merged already: each counts once, however often and deeply it is named.
    """
    merged = set() if merged is None else merged
    if not isinstance(node, MappingNode) or id(node) in merged:
        return
    merged.add(id(node))
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.value == "<<":
            for one in value.value if isinstance(value, SequenceNode) else [value]:
                yield from entries(one, merged=merged)
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.value != "<<":
            yield key.value, key, value


def table(node: Node | None) -> dict[str, Node]:
    """Return a table by its keys, empty when the node is none."""
    return {key: value for key, _, value in entries(node)}


def inner(node: Node | None, *path: str) -> Node | None:
    """Return what stands below a node, None if nothing does."""
    for key in path:
        node = table(node).get(key)
    return node


def items(node: Node | None) -> list[Node]:
    """Return the entries of a list; a single value counts as a list of one."""
    if isinstance(node, SequenceNode):
        return list(node.value)
    return [] if node is None or is_null(node) else [node]


def is_null(node: Node) -> bool:
    """Whether a node says nothing."""
    return isinstance(node, ScalarNode) and node.tag == "tag:yaml.org,2002:null"


def text(node: Node | None) -> str:
    """Return the text of a value, "" for a list, a table or nothing."""
    return node.value if isinstance(node, ScalarNode) and not is_null(node) else ""


def word(node: Node) -> Word:
    """Return a value as a word that knows its place."""
    mark = node.start_mark
    length = node.end_mark.index - mark.index if node.end_mark.line == mark.line else 1
    value = text(node)
    is_quoted = isinstance(node, ScalarNode) and node.style in {"'", '"'} and length == len(value) + 2
    column = mark.column + (2 if is_quoted else 1)
    return Word(value, mark.line + 1, column, len(value) if is_quoted else max(1, length), quoted=is_quoted)


def inside(source: Source, node: Node) -> Source:
    """Return the text of a value as a source of its own."""
    return source.inner(text(node), word(node))
