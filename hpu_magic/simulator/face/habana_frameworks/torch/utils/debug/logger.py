"""Loggers for the components of the bridge."""

from __future__ import annotations

import functools
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
    """Logs messages as ``[type] text`` to the Python logger named `type`.

    The arguments of a message are a format string with ``{}`` or ``%`` followed by its values, or
    values to join with commas. `data` contains the messages, of all levels, that were logged after
    a call to `set_store_data`.
    """

    def __init__(self, type: str) -> None:
        self.type = type
        self.data: list[str] = []
        self._stores = False
        self._logger = logging.getLogger(type)

    def set_store_data(self, store: bool) -> None:
        """Start or stop storing messages in `data`."""
        self._stores = store

    def _log(self, level: str, *args: Any) -> None:
        number = _LEVELS[level]
        if not self._stores and not self._logger.isEnabledFor(number):
            return
        message = f"[{self.type}] {_text(args)}"
        if self._stores:
            self.data.append(message)
        self._logger.log(number, "%s", message)

    trace = functools.partialmethod(_log, "trace")  # lower than DEBUG
    debug = functools.partialmethod(_log, "debug")
    info = functools.partialmethod(_log, "info")
    warn = functools.partialmethod(_log, "warn")
    error = functools.partialmethod(_log, "error")
    critical = functools.partialmethod(_log, "critical")


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
    """Set the level of a logger; raise AssertionError if the level does not exist."""
    assert level in _LEVELS, f"unsupported logger_level = {level}"
    logging.getLogger(logger_name).setLevel(_LEVELS[level])
