"""The server's interface to the child process that reads the cards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Any

from hpu_magic import child_python
from hpu_magic.errors import HPUError
from hpu_magic.server.reader import ARGUMENTS, READY

_START_TIMEOUT = 30.0  # in seconds; Python starts slowly on a busy machine
_GRACE = 1.0  # seconds to wait for a process to end
_LONGEST_PAUSE = 60.0  # seconds
_LONGEST_LINE = 1 << 20  # bytes


class ReadError(HPUError):
    """Raised if the cards could not be read; the message states the reason in one sentence."""


class ReaderProcess:
    """Reads the cards in a child process, and replaces the child if it hangs or crashes.

    The first replacement starts immediately, so that only one reading is lost after a single
    failure. With each further failure, the pause before a replacement doubles, up to one minute.
    `timeout` is the maximum duration of a reading in seconds. If `arguments` is true, the names of
    holders are full command lines.
    """

    def __init__(self, timeout: float, *, arguments: bool = False) -> None:
        self._timeout = timeout
        self._options = [ARGUMENTS] if arguments else []
        self._process: asyncio.subprocess.Process | None = None
        self._failures = 0
        self._not_before = 0.0
        self._last_failure = ""

    @property
    def pid(self) -> int | None:
        """The PID of the child process, or None if there is none."""
        return self._process.pid if self._process else None

    async def read(self) -> dict[str, Any]:
        """Return the result of `hpu_magic.server.reader.read`.

        Raises ReadError if the child hangs or crashes, or during the pause after a failure.
        """
        pause = self._not_before - asyncio.get_running_loop().time()
        if pause > 0:
            raise ReadError(f"{self._last_failure} The next attempt is in {pause:.0f} s.")
        try:
            record = await self._request()
        except ReadError as failure:
            self._failures += 1
            self._last_failure = str(failure)
            if self._failures > 1:
                pause = min(2.0 ** (self._failures - 1), _LONGEST_PAUSE)
                self._not_before = asyncio.get_running_loop().time() + pause
            raise
        self._failures = 0
        return record

    async def stop(self) -> None:
        """Stop the child process; the next reading starts a new one."""
        process = self._take()
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        if not await _ended(process):
            await _kill(process)

    async def _request(self) -> dict[str, Any]:
        try:
            process = self._process = self._process or await _start(self._options)
        except OSError as error:
            raise ReadError(
                f"The child process that reads the cards could not start: {error}."
            ) from error
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(b"\n")
            line = await asyncio.wait_for(process.stdout.readline(), self._timeout)
            if line:
                return json.loads(line)
        except asyncio.TimeoutError:
            await _kill(self._take())
            raise ReadError(
                f"The driver did not answer within {self._timeout:g} s; the reader process is "
                f"being restarted."
            ) from None
        except asyncio.CancelledError:
            # If the child kept running, this answer would be mistaken for the answer to the next
            # request.
            await _kill(self._take())
            raise
        except (ValueError, ConnectionError):
            # The answer is invalid, too long or incomplete.
            pass
        how = await _how_it_ended(self._take())
        raise ReadError(f"The child process that reads the cards {how}; it is being restarted.")

    def _take(self) -> asyncio.subprocess.Process | None:
        process, self._process = self._process, None
        return process


async def _start(options: list[str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *child_python.command("hpu_magic.server.reader", *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
        env=child_python.environment(),
        # Isolate the child from interrupts in the server's terminal, and allow killing its own
        # children, too.
        start_new_session=True,
    )
    assert process.stdout is not None
    line = b""
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _START_TIMEOUT)
    except asyncio.TimeoutError:
        raise OSError(f"it was not ready within {_START_TIMEOUT:g} s") from None
    finally:
        if line != READY:
            await _kill(process)
    if line != READY:
        raise OSError("it ended immediately; the server's log may contain the reason")
    return process


async def _how_it_ended(process: asyncio.subprocess.Process | None) -> str:
    if process is None:
        return "was stopped"
    if not await _ended(process):
        await _kill(process)
        return "returned an invalid answer"
    code = process.returncode or 0
    if code < 0:
        return f"crashed in the driver's library ({signal.Signals(-code).name})"
    return f"ended with code {code}"


async def _ended(process: asyncio.subprocess.Process) -> bool:
    try:
        await asyncio.wait_for(process.wait(), _GRACE)
    except asyncio.TimeoutError:
        return False
    return True


async def _kill(process: asyncio.subprocess.Process | None) -> None:
    if process is None:
        return
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # A process that is waiting for hardware cannot be killed and must not block the server.
    await _ended(process)
