"""The child process that reads the cards, seen from the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from typing import Any

from hpu_magic import child_python
from hpu_magic.monitor.reader import ARGUMENTS, READY

_START_TIMEOUT = 30.0  # seconds; on a busy machine starting Python takes its time
_GRACE = 1.0  # seconds that a process gets to end
_LONGEST_PAUSE = 60.0  # seconds
_LONGEST_LINE = 1 << 20  # bytes


class ReadError(Exception):
    """The cards could not be read; the text says why in one sentence."""


class ReaderProcess:
    """Reads the cards in a child process, and replaces one that hangs or crashes.

    The first replacement is immediate, so that a failure costs one reading. When
    it fails too, the pauses between further ones double, up to a minute.

    Parameters
    ----------
    timeout : float
        Seconds that a reading may take.
    arguments : bool
        Whether holders are shown with the arguments of their command lines.
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
        """The child's pid; None while there is none."""
        return self._process.pid if self._process else None

    async def read(self) -> dict[str, Any]:
        """Return a snapshot as `hpu_magic.monitor.reader.read` makes it.

        Raises
        ------
        ReadError
            The child hung or crashed, now or so lately that no other is started yet.
        """
        pause = self._not_before - asyncio.get_running_loop().time()
        if pause > 0:
            raise ReadError(f"{self._last_failure} The next attempt is in {pause:.0f} s.")
        try:
            record = await self._ask()
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
        """End the child; the next reading starts another."""
        process = self._take()
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        if not await _ended(process):
            await _kill(process)

    async def _ask(self) -> dict[str, Any]:
        try:
            process = self._process = self._process or await _start(self._options)
        except OSError as error:
            raise ReadError(f"The reader of the cards cannot be started: {error}.") from error
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
                f"The driver did not answer within {self._timeout:g} s; its reader is started anew."
            ) from None
        except asyncio.CancelledError:
            # Its answer would be taken for that to the next question.
            await _kill(self._take())
            raise
        except (ValueError, ConnectionError):
            # Not JSON, an endless line, or an end amid the answer: a broken reader, as below.
            pass
        how = await _how_it_ended(self._take())
        raise ReadError(f"The reader of the cards {how}; it is started anew.")

    def _take(self) -> asyncio.subprocess.Process | None:
        process, self._process = self._process, None
        return process


async def _start(options: list[str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *child_python.command("hpu_magic.monitor.reader", *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
        env=child_python.environment(),
        # Interrupts from the server's terminal are not for it, and it is killed with its children.
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
        raise OSError("it ended at once, and the server's log may say why")
    return process


async def _how_it_ended(process: asyncio.subprocess.Process | None) -> str:
    if process is None:
        return "was stopped"
    if not await _ended(process):
        await _kill(process)
        return "gave no usable answer"
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
    # A process that waits for hardware cannot be killed; it must not hold up the server.
    await _ended(process)
