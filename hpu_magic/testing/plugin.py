"""What pytest loads: options, markers and fixtures. Without ``--hpu`` nothing else is imported."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch

    from hpu_magic.testing.cards import Ranks

_OFF = "needs the hpu device: run pytest --hpu"
_MARKERS = (
    "eager: runs in eager mode, in a process of its own where the session is in lazy mode",
    "lazy: runs in lazy mode, in a process of its own where the session is in eager mode",
    "hpu_no_fallback(allow=()): fails if an operator runs on the CPU, but for those allowed",
    "hpu_max_recompilations(n): fails if lines compile again more than n times; None: no limit",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("hpu", "Intel Gaudi, real or simulated (hpu_magic)")
    group.addoption(
        "--hpu",
        action="store_true",
        help="tests have the hpu device, simulated where no vendor package is installed; "
        "the options below mean nothing without it",
    )
    group.addoption(
        "--hpu-mode",
        choices=["eager", "lazy"],
        help="execution mode of tests without a marker (PT_HPU_LAZY_MODE, else eager)",
    )
    group.addoption(
        "--hpu-no-fallback",
        action="store_true",
        help="fail tests in which an operator runs on the CPU for want of a device kernel",
    )
    group.addoption(
        "--hpu-max-recompilations",
        type=_count,
        metavar="N",
        help="fail tests in which lines that compiled a graph compile others, more than N times",
    )


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number: give 0 or more")
    return int(text)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Turn the device on before any test's file imports torch."""
    if early_config.known_args_namespace.hpu:
        from hpu_magic.testing import session

        session.turn_on(early_config)


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers, and bring in what they mean."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    if config.option.hpu:
        from hpu_magic.testing import session

        session.configure(config)


@pytest.fixture
def hpu(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The device, ``torch.device("hpu")``; the process takes its card at the first use.

    The frames of tests that failed are cleared and garbage is collected, so that the next test has
    the memory. A test that passed and left tensors on the device is told so by a
    `DeviceMemoryWarning`. Skips where pytest runs without ``--hpu``.
    """
    if not request.config.option.hpu:
        pytest.skip(_OFF)
    from hpu_magic.testing import memory

    yield from memory.device_of(request.node)


@pytest.fixture
def hpu_cards(request: pytest.FixtureRequest) -> Iterator[Callable[..., Ranks]]:
    """Functions on several cards: ``hpu_cards(2)(train, steps=3)`` is a list of two results.

    ``hpu_cards(n, backend=None, timeout=120)`` gives `Ranks`, whose calls run a function on each
    of n cards, in processes with the environment that torchrun gives. They start at the first call
    and end with the test. Skips where pytest runs without ``--hpu``, and where the machine has
    fewer cards.
    """
    if not request.config.option.hpu:
        pytest.skip(_OFF)
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
    if not request.config.option.hpu:
        pytest.skip(_OFF)
    from hpu_magic.testing import session

    return session.mode_of(request.config)
