"""Loggers of the compile backend."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from habana_frameworks.torch.utils.debug.logger import Logger


@functools.cache
def get_compile_backend_logger() -> Logger:
    """Return the compile backend's logger."""
    return Logger("PT_COMPILE")


@functools.cache
def get_fx_graph_logger() -> Logger:
    """Return the logger for FX graphs."""
    return Logger("PT_COMPILE FX GRAPH")


def dump_fx_graph(fx_module: Any, jit_graph: Any, recipe_id: Any) -> None:
    """Log a graph before and after compilation."""
    log = get_fx_graph_logger()
    log.debug("recipe", recipe_id)
    log.debug("traced graph", getattr(fx_module, "code", fx_module))
    log.debug("compiled graph", jit_graph)


def log_function_start_end(function: Callable[..., Any]) -> Callable[..., Any]:
    """Log the start and the end of each call to a function."""

    @functools.wraps(function)
    def logged(*args: Any, **kwargs: Any) -> Any:
        log = get_compile_backend_logger()
        log.debug("{} begins", function.__qualname__)
        try:
            return function(*args, **kwargs)
        finally:
            log.debug("{} ends", function.__qualname__)

    return logged
