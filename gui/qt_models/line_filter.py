"""What a person wants to see of a log: from which level on, and with which text in it."""

from PySide6.QtCore import QRegularExpression

from backend.desk.types import LogLine

_RANKS = {"DEBUG": 0, "": 1, "INFO": 1, "WARNING": 2, "ERROR": 3}


class FilterTooSlowError(Exception):
    """The expression needs too long for a line; the window must not wait for it."""


class LineFilter:
    """Judges lines; text is looked for without regard to case.

    Attributes:
        level: "" for all lines, else the least level: "INFO", "WARNING" or "ERROR". Lines without one count as INFO.
        text: what must stand in a line, "" for anything.
        problem: why `text` is no regular expression, "" if it is one or need not be.
    """

    def __init__(self, level: str = "", text: str = "", *, is_regex: bool = False) -> None:
        self.level = level
        self.text = text
        self.is_regex = is_regex
        self.problem = ""
        self._rank = _RANKS[level] if level else 0
        self._plain = text.lower()
        pattern = text if is_regex else QRegularExpression.escape(text)
        self._expression = QRegularExpression(pattern, QRegularExpression.PatternOption.CaseInsensitiveOption)
        if is_regex and not self._expression.isValid():
            place = self._expression.patternErrorOffset()
            self.problem = f"No regular expression: {self._expression.errorString()} (at character {place + 1})."

    @property
    def is_open(self) -> bool:
        """Whether every line passes."""
        return self._rank == 0 and not self.text

    def passes(self, line: LogLine) -> bool:
        """Whether a line is to be shown.

        Raises:
            FilterTooSlowError: the expression needs too long for it.
        """
        if _RANKS[line.level] < self._rank:
            return False
        if not self.text or self.problem:
            return True
        if not self.is_regex:
            return self._plain in line.text.lower()
        found = self._expression.match(line.text)
        if not found.isValid():  # PCRE2 gives up after a fixed number of steps, some 30 ms
            raise FilterTooSlowError
        return found.hasMatch()

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where the text stands, as beginnings and ends in UTF-16 units of Qt; at most 50 places."""
        spans: list[tuple[int, int]] = []
        if not self.text or self.problem:
            return spans
        found = self._expression.globalMatch(text)
        while found.hasNext() and len(spans) < 50:
            match = found.next()
            if match.capturedLength() > 0:
                spans.append((match.capturedStart(), match.capturedEnd()))
        return spans
