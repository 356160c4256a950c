"""Loggers of the bridge's parts."""

from __future__ import annotations

import logging
from typing import Any

_LEVELS = {
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
logging.addLevelName(_LEVELS["trace"], "TRACE")


class Logger:
    """Logs messages of one kind as ``[kind] text``, on Python's logger of the same name.

    The arguments of a message are a text with ``{}`` or ``%`` and its values, or values that
    are joined by commas.

    Parameters
    ----------
    type : str
        The kind.

    Attributes
    ----------
    data : list of str
        Messages since `set_store_data` was asked to keep them, whatever their level.
    """

    def __init__(self, type: str) -> None:
        self.type = type
        self.data: list[str] = []
        self._stores = False
        self._logger = logging.getLogger(type)

    def set_store_data(self, store: bool) -> None:
        """Keep the text of each message in `data` from now on, or no longer."""
        self._stores = store

    def trace(self, *args: Any) -> None:
        """Log below debug."""
        self._log("trace", args)

    def debug(self, *args: Any) -> None:
        """Log for debugging."""
        self._log("debug", args)

    def info(self, *args: Any) -> None:
        """Log for information."""
        self._log("info", args)

    def warn(self, *args: Any) -> None:
        """Log a warning."""
        self._log("warn", args)

    def error(self, *args: Any) -> None:
        """Log an error."""
        self._log("error", args)

    def critical(self, *args: Any) -> None:
        """Log what must not be missed."""
        self._log("critical", args)

    def _log(self, level: str, args: tuple[Any, ...]) -> None:
        number = _LEVELS[level]
        if not self._stores and not self._logger.isEnabledFor(number):
            return
        message = f"[{self.type}] {_text(args)}"
        if self._stores:
            self.data.append(message)
        self._logger.log(number, "%s", message)


def _text(args: tuple[Any, ...]) -> str:
    if not args:
        return ""
    first, rest = args[0], args[1:]
    if isinstance(first, str) and "{}" in first:
        return first.format(*rest) if rest else ""
    if isinstance(first, str) and "%" in first and rest:
        return first % rest
    return ", ".join(map(str, args))


def enable_logging(logger_name: str, level: str) -> None:
    """Let the messages of a logger through from a level on.

    Raises
    ------
    AssertionError
        `level` is none of trace, debug, info, warn, error and critical.
    """
    assert level in _LEVELS, f"unsupported logger_level = {level}"
    logging.getLogger(logger_name).setLevel(_LEVELS[level])
