"""A settings file in JSON, with errors that name the line and the mend."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hpu_magic.errors import RefusedError


class SettingsFile:
    """The settings of a JSON file, and where each of them stands.

    Parameters
    ----------
    path : str
        The file; ``~`` is the home folder.

    Raises
    ------
    RefusedError
        The file cannot be read, or is no JSON object.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # Editors of other systems mark UTF-8 at the beginning.
            self._text = Path(path).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, RuntimeError, ValueError) as error:  # there may be no such home folder
            raise RefusedError(_unreadable(path, error)) from None
        try:
            values = json.loads(self._text)
        except json.JSONDecodeError as error:
            raise RefusedError(_explained(path, self._text, error)) from None
        except RecursionError:
            raise RefusedError(f"The settings {path!r} are nested too deeply.") from None
        except ValueError as error:  # a number of thousands of digits
            raise RefusedError(_unreadable(path, error)) from None
        if not isinstance(values, dict):
            raise RefusedError(
                f"{path}, line 1: settings are an object, not a {type(values).__name__}: "
                'begin with { and write "key": value pairs.'
            )
        self.values: dict[str, Any] = values

    def place(self, *keys: str) -> str:
        """Return the file and the line on which the last of nested keys stands."""
        at = 0
        for key in keys:
            found = re.compile(re.escape(json.dumps(key)) + r"\s*:").search(self._text, at)
            at = found.start() if found else at
        line = self._text.count("\n", 0, at) + 1
        return f"{self.path}, line {line}"


def _unreadable(path: str, error: Exception) -> str:
    return f"The settings {path!r} cannot be read: {str(error).rstrip('.')}."


def _explained(path: str, text: str, error: json.JSONDecodeError) -> str:
    line, mend = _mend(text, error)
    shown = text.split("\n")[line - 1].strip()
    near = f" ({shown[:60]})" if shown else ""
    return f"{path}, line {line}{near}: {mend}"


def _mend(text: str, error: json.JSONDecodeError) -> tuple[int, str]:
    """Return the line that is to be changed, and how."""
    before, rest = text[: error.pos].rstrip(), text[error.pos :].lstrip()
    last_line = before.count("\n") + 1
    word = re.match(r"[A-Za-z]+", rest)
    if not text.strip():
        return 1, 'the file is empty; write {"mode": "MEASURE"}.'
    if rest.startswith("'"):
        return error.lineno, "JSON has double quotation marks only; write \" in place of '."
    if rest.startswith(("//", "#", "/*")):
        return error.lineno, "JSON has no comments; take it out."
    if before.endswith(",") and rest[:1] in ("}", "]"):
        return last_line, "a comma stands before the closing bracket; take it out."
    if rest.startswith(",") and "trailing comma" in error.msg:
        return error.lineno, "a comma stands before the closing bracket; take it out."
    if word and word[0] in ("True", "False", "None"):
        right = {"True": "true", "False": "false", "None": "null"}[word[0]]
        return error.lineno, f"JSON writes {right}, not {word[0]}."
    if "',' delimiter" in error.msg and rest:
        return last_line, "a comma is missing at the end."
    if error.msg.startswith("Unterminated string") or text[error.pos : error.pos + 1] == "\n":
        return error.lineno, "a quotation mark is missing; close the text."
    if not rest:
        return last_line, "the file ends too early; close its brackets and quotation marks."
    if "Extra data" in error.msg:
        return error.lineno, "more follows behind the object; take it out."
    return error.lineno, f"this is no JSON: {error.msg[0].lower()}{error.msg[1:]}; write it so."
