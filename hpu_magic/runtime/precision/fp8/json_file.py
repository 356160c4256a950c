"""A JSON settings file, with error messages that include the line number and a fix."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hpu_magic.errors import HPUError


class SettingsFile:
    """The settings in a JSON file and their line numbers.

    Raises `HPUError` if the file cannot be read or does not contain a JSON object.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # Some editors write a byte order mark.
            self._text = Path(path).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no home folder
            raise HPUError(_unreadable(path, error)) from None
        try:
            values = json.loads(self._text)
        except json.JSONDecodeError as error:
            raise HPUError(_explained(path, self._text, error)) from None
        except RecursionError:
            raise HPUError(f"The settings {path!r} are nested too deeply.") from None
        except ValueError as error:  # an integer with thousands of digits
            raise HPUError(_unreadable(path, error)) from None
        if not isinstance(values, dict):
            raise HPUError(
                f"{path}, line 1: settings must be an object, not a {type(values).__name__}: "
                'begin with { and write "key": value pairs.'
            )
        self.values: dict[str, Any] = values

    def place(self, *keys: str) -> str:
        """Return the file and the line number of the last key in a chain of nested keys."""
        at = 0
        for key in keys:
            match = re.compile(re.escape(json.dumps(key)) + r"\s*:").search(self._text, at)
            at = match.start() if match else at
        line = self._text.count("\n", 0, at) + 1
        return f"{self.path}, line {line}"


def _unreadable(path: str, error: Exception) -> str:
    return f"The settings {path!r} cannot be read: {str(error).rstrip('.')}."


def _explained(path: str, text: str, error: json.JSONDecodeError) -> str:
    line, fix = _fix(text, error)
    source = text.split("\n")[line - 1].strip()
    near = f" ({source[:60]})" if source else ""
    return f"{path}, line {line}{near}: {fix}"


def _fix(text: str, error: json.JSONDecodeError) -> tuple[int, str]:
    """Return the line to change and how to change it."""
    before, rest = text[: error.pos].rstrip(), text[error.pos :].lstrip()
    last_line = before.count("\n") + 1
    word = re.match(r"[A-Za-z]+", rest)
    if not text.strip():
        return 1, 'the file is empty; write {"mode": "MEASURE"}.'
    if rest.startswith("'"):
        return error.lineno, "JSON requires double quotation marks; write \" instead of '."
    if rest.startswith(("//", "#", "/*")):
        return error.lineno, "JSON does not support comments; remove this one."
    if before.endswith(",") and rest[:1] in ("}", "]"):
        return last_line, "there is a comma before the closing bracket; remove it."
    if rest.startswith(",") and "trailing comma" in error.msg:
        return error.lineno, "there is a comma before the closing bracket; remove it."
    if word and word[0] in ("True", "False", "None"):
        right = {"True": "true", "False": "false", "None": "null"}[word[0]]
        return error.lineno, f"{word[0]} is not valid JSON; write {right}."
    if "',' delimiter" in error.msg and rest:
        return last_line, "a comma is missing at the end."
    if error.msg.startswith("Unterminated string") or text[error.pos : error.pos + 1] == "\n":
        return error.lineno, "a closing quotation mark is missing; add it."
    if not rest:
        return last_line, "the file ends too early; close its brackets and quotation marks."
    if "Extra data" in error.msg:
        return error.lineno, "there is text after the object; remove it."
    return (
        error.lineno,
        f"this is not valid JSON: {error.msg[0].lower()}{error.msg[1:]}; correct it.",
    )
