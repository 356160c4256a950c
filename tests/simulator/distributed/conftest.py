"""Groups of ranks that communicate over hccl, in both modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from ranks import Ranks, Server, join


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server that starts groups of ranks quickly."""
    server = Server()
    yield server
    server.close()


@pytest.fixture
def launch(server: Server) -> Iterator[Callable[..., Ranks]]:
    """Start ranks, and end them after the test."""
    started = []

    def start(size: int, **environment: str) -> Ranks:
        started.append(server.start(size, **environment))
        return started[-1]

    yield start
    for ranks in started:
        ranks.close()


@pytest.fixture(scope="module", params=["eager", "lazy"])
def pair(server: Server, request) -> Iterator[Ranks]:
    """Two ranks in a group that uses hccl for device tensors and gloo for CPU tensors."""
    ranks = server.start(2, PT_HPU_LAZY_MODE="1" if request.param == "lazy" else "0")
    ranks(join)
    yield ranks
    ranks.close()


@pytest.fixture(scope="module")
def four(server: Server) -> Iterator[Ranks]:
    """Four ranks in a group that uses hccl and gloo, in eager mode."""
    ranks = server.start(4)
    ranks(join)
    yield ranks
    ranks.close()
