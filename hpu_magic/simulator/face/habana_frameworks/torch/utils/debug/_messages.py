"""Messages of a script among those of the bridge, on its logger ``habana_frameworks.torch``."""

from __future__ import annotations

import logging

_logger = logging.getLogger("habana_frameworks.torch")


def _hb_print(msg: str) -> None:
    """Log `msg` as the bridge's."""
    _logger.info("%s", msg)


def _hg_print(msg: str) -> None:
    """Log `msg` as the graph's."""
    _logger.info("%s", msg)


def _mem_log(msg: str) -> None:
    """Log `msg` as the allocator's."""
    _logger.info("%s", msg)
