"""Loggers of the parts of the bridge."""

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
    """Logs messages as ``[type] text`` to Python's logger with the name `type`.

    The arguments of a message are a format with ``{}`` or ``%`` and its values, or values to join
    by commas.

    Parameters
    ----------
    type : str
        Prefix of the messages, and name of the logger.

    Attributes
    ----------
    data : list of str
        Messages of all levels since `set_store_data`.
    """

    def __init__(self, type: str) -> None:
        self.type = type
        self.data: list[str] = []
        self._stores = False
        self._logger = logging.getLogger(type)

    def set_store_data(self, store: bool) -> None:
        """Start or stop storing the text of messages in `data`."""
        self._stores = store

    def trace(self, *args: Any) -> None:
        """Log with level TRACE, which is lower than DEBUG."""
        self._log("trace", args)

    def debug(self, *args: Any) -> None:
        """Log with level DEBUG."""
        self._log("debug", args)

    def info(self, *args: Any) -> None:
        """Log with level INFO."""
        self._log("info", args)

    def warn(self, *args: Any) -> None:
        """Log with level WARNING."""
        self._log("warn", args)

    def error(self, *args: Any) -> None:
        """Log with level ERROR."""
        self._log("error", args)

    def critical(self, *args: Any) -> None:
        """Log with level CRITICAL."""
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
    """Set the level of a logger.

    Raises
    ------
    AssertionError
        `level` is not trace, debug, info, warn, error or critical.
    """
    assert level in _LEVELS, f"unsupported logger_level = {level}"
    logging.getLogger(logger_name).setLevel(_LEVELS[level])
