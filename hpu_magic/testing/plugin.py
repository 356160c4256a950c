"""The plug-in's options, markers and fixtures. Other modules are only imported with ``--hpu``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from hpu_magic.testing.cards import Ranks

_MARKERS = (
    "eager: run in eager mode, in a separate process if the session is in lazy mode",
    "lazy: run in lazy mode, in a separate process if the session is in eager mode",
    "hpu_no_fallback(allow=()): fail if an operator that is not in allow runs on the CPU",
    "hpu_max_recompilations(n): fail if graphs are recompiled more than n times (None: no limit)",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("hpu", "Intel Gaudi, real or simulated (hpu_magic)")
    group.addoption(
        "--hpu",
        action="store_true",
        help="activate the hpu device, which is simulated if no vendor package is installed; "
        "the other hpu options require it",
    )
    group.addoption(
        "--hpu-mode",
        choices=["eager", "lazy"],
        help="execution mode for tests without a marker (default: PT_HPU_LAZY_MODE, or else eager)",
    )
    group.addoption(
        "--hpu-no-fallback",
        action="store_true",
        help="fail tests in which an operator without a device kernel runs on the CPU",
    )
    group.addoption(
        "--hpu-max-recompilations",
        type=_count,
        metavar="N",
        help="fail tests in which graphs are recompiled more than N times",
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"N must be an integer of at least 0, got {text!r}")
    return int(text)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Activate the device before any test file imports torch."""
    if early_config.known_args_namespace.hpu:
        from hpu_magic.testing import session

        session.turn_on(early_config)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers and, with ``--hpu``, the hooks."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if config.option.hpu:
        from hpu_magic.testing import session

        session.configure(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a line with the device and the mode."""
    if not config.option.hpu:
        return None
    from hpu_magic import backend
    from hpu_magic.runtime.device import device
    from hpu_magic.testing import session

    kind = "simulated " if backend.is_simulated() else ""
    name = device.generation() or backend.version()
    return f"hpu: {kind}{name}, {session.mode_of(config)}"


def _require_device(request: pytest.FixtureRequest) -> None:
    if not request.config.option.hpu:
        pytest.skip("needs the hpu device: run pytest --hpu")


@pytest.fixture
def hpu(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The device, ``torch.device("hpu")``. The process acquires its card on first use.

    After a test fails, the local variables in its traceback are cleared and garbage is collected,
    so that the next test can use the memory. If a test passes but leaves tensors on the device, a
    `DeviceMemoryWarning` is issued. Without ``--hpu``, tests that use this fixture are skipped.
    """
    _require_device(request)
    from hpu_magic.testing import memory

    yield from memory.device_of(request.node)


@pytest.fixture
def hpu_cards(request: pytest.FixtureRequest) -> Iterator[Callable[..., Ranks]]:
    """Run functions on multiple cards: ``hpu_cards(2)(train, steps=3)`` returns two results.

    ``hpu_cards(n, backend=None, timeout=120)`` returns `Ranks`, which run a function on n cards
    when called, in processes with the same environment variables as under torchrun. The processes
    start on the first call, and end when the test ends. The test is skipped without ``--hpu``, or
    if the machine has fewer cards.
    """
    _require_device(request)
    from hpu_magic import extras

    if why := extras.absence("hpu_cards", "testing", ["cloudpickle"]):
        pytest.fail(why, pytrace=False)
    from hpu_magic.testing.cards import Ranks

    made: list[Ranks] = []

    def cards(count: int, **options: Any) -> Ranks:
        made.append(Ranks(count, request.node, **options))
        return made[-1]

    try:
        yield cards
    finally:
        for ranks in made:
            ranks.close()


@pytest.fixture
def hpu_mode(request: pytest.FixtureRequest) -> str:
    """The execution mode of this process, ``"eager"`` or ``"lazy"``."""
    _require_device(request)
    from hpu_magic.testing import session

    return session.mode_of(request.config)
