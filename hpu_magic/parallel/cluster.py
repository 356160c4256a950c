"""The worker processes, which form an ipyparallel cluster that never outlives the notebook.

ipyparallel launches the engines. By default, the engines run on this machine, with one process per
worker; a profile can launch them through SLURM, MPI or SSH.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from subprocess import CalledProcessError
from typing import Any

import psutil
from IPython.core.profiledir import ProfileDir, ProfileDirError
from IPython.paths import get_ipython_dir

from hpu_magic import child_python
from hpu_magic.errors import HPUError
from hpu_magic.parallel.guard import Guard

_LOCAL = "LocalEngineSetLauncher"
_NOTICE_SECONDS = 2.0
_END_SECONDS = 5.0
_START_SECONDS = 300  # usually, 2 seconds are enough; a busy machine needs more
_CONNECT_SECONDS = 10.0  # the time within which an interrupt takes effect
_TICK = 1.0


class Cluster:
    """Connected ipyparallel engines.

    Parameters
    ----------
    count
        Number of engines, or None to use the number set in the profile (``c.Cluster.n``).
    profile
        Name of an IPython profile whose ``ipcluster_config.py`` configures how engines are
        launched, or None to launch them on this machine.

    Raises
    ------
    HPUError
        The profile does not exist, or the engines did not start.
    """

    def __init__(self, count: int | None, profile: str | None) -> None:
        import ipyparallel

        self._ends: dict[int, int | None] = {}
        self._guard: Guard | None = None
        self._session: int | None = None  # session shared by the controller and its schedulers
        self.client: Any = None  # ipyparallel.Client
        self._profile = profile
        options = _options(count, profile)
        try:
            self._cluster = ipyparallel.Cluster(
                delay=0,
                log_level=logging.CRITICAL,
                cluster_file="",
                shutdown_atexit=False,  # it would print messages
                **options,
            )
        except Exception as error:  # the profile's code can raise any exception
            raise HPUError(
                f"The profile {profile!r} cannot launch workers: {type(error).__name__}: {error}"
            ) from error
        # ipyparallel uses the event loop that started its processes to detect when they end.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="hpu_magic workers", daemon=True
        )
        self._thread.start()
        # Whether the engines run on this machine as children of this process.
        launcher = self._cluster.engine_launcher_class
        self.local = profile is None or launcher.__name__ == _LOCAL
        try:
            self._start(count)
        except BaseException:
            self.stop()
            raise

    def _start(self, count: int | None) -> None:
        from ipyparallel.cluster.launcher import LocalProcessLauncher

        self._do(self._cluster.start_controller())
        controller = self._cluster.controller.pid
        if isinstance(self._cluster.controller, LocalProcessLauncher):
            self._session = controller
        self._guard = Guard([controller])
        try:
            self._do(self._cluster.start_engines(count))
        except (OSError, RuntimeError, CalledProcessError) as error:
            self._cluster.engines.clear()  # there are no engines to stop
            raise HPUError(f"The workers could not be launched: {error}") from error
        engines = self._cluster.engine_set
        for launcher in self._launchers(engines):
            launcher.on_stop(self._ended)
        if self.local:
            self._guard.dismiss()
            self._guard = Guard([controller, *(each.pid for each in self._launchers(engines))])
        expected = getattr(engines, "n", count)
        until = time.monotonic() + self._cluster.engine_timeout
        while not (self._connected() and self._registered(expected)):
            if self._ends or time.monotonic() > until:
                raise HPUError(self._why_incomplete(engines, expected))

    def _connected(self) -> bool:
        """Connect the client, and return False if the controller has not answered yet."""
        if self.client is None:
            with suppress(TimeoutError):
                self.client = self._do(self._cluster.connect_client(timeout=_CONNECT_SECONDS))
        return self.client is not None

    def _registered(self, expected: int | None) -> bool:
        """Wait briefly, and return whether all engines have registered."""
        from ipyparallel.error import EngineError

        try:
            self.client.wait_for_engines(expected, interactive=False, timeout=_TICK)
        except TimeoutError:
            return False
        except EngineError:  # all engines have ended
            self._ends.setdefault(0, None)
            return False
        return True

    def _why_incomplete(self, engines: Any, expected: int | None) -> str:
        started = 0 if self.client is None else len(self.client)
        reason = f"within {self._cluster.engine_timeout} s"
        advice = "increase c.Cluster.engine_timeout in the profile's ipcluster_config.py."
        if self._profile is None:
            advice = "end other programs that use this machine's processors or memory."
        if self._ends:
            reason = f"because one {how_ended(next(iter(self._ends.values())))}"
            advice = "its launcher has printed nothing."
        lines = [line for line in (engines.get_output() or "").splitlines() if line.strip()]
        if lines:
            advice = f"the last line of the launcher's output is {lines[-1].strip()!r}."
        return f"Only {started} of {expected} workers started {reason}: {advice}"

    @staticmethod
    def _launchers(engines: Any) -> list[Any]:
        return list(getattr(engines, "launchers", {}).values())

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        doing = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return doing.result()
        except BaseException:  # for example, an interrupt
            doing.cancel()
            raise

    def _ended(self, data: Mapping[str, Any]) -> None:
        self._ends[data["pid"]] = data["exit_code"]

    def how_ended(self, pid: int) -> str:
        """Return how a process on this machine ended, if known."""
        until = time.monotonic() + (_NOTICE_SECONDS if self.local else 0.0)
        while pid not in self._ends and time.monotonic() < until:
            time.sleep(0.02)  # the exit code arrives after the notification that the engine is gone
        return how_ended(self._ends.get(pid))

    def interrupt(self, engines: list[int]) -> None:
        """Send SIGINT to engines, like Ctrl-C."""
        if engines:
            self.client.send_signal(signal.SIGINT, targets=engines, block=False)

    def stop(self, *, at_exit: bool = False) -> None:
        """End all processes, using SIGKILL if necessary; an interrupt does not stop the cleanup."""
        if at_exit:  # the interpreter can no longer start threads
            self._stop()
            return
        executor = ThreadPoolExecutor(1, "hpu_magic workers end")
        stopping = executor.submit(self._stop)
        executor.shutdown(wait=False)
        stopping.result()

    def _stop(self) -> None:
        try:
            if self.client is not None:
                self.client.close()
            self._end_together()
            self._do(self._cluster.stop_cluster())
            if self._session is not None:
                # A controller that is terminated during startup leaves its schedulers running.
                with suppress(ProcessLookupError):
                    os.killpg(self._session, signal.SIGTERM)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            if self._guard is not None:
                self._guard.dismiss()

    def _end_together(self) -> None:
        """End all engines on this machine at the same time.

        ipyparallel would end them one by one, and an engine that has imported PyTorch takes a
        second.
        """
        if not self.local or self._cluster.engine_set is None:
            return
        left = [each for each in self._launchers(self._cluster.engine_set) if each.running]
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for launcher in left:
                with suppress(psutil.NoSuchProcess):
                    launcher.signal(signum)
            until = time.monotonic() + _END_SECONDS
            while left and time.monotonic() < until:
                time.sleep(0.02)
                still = [each for each in left if each.running]
                if len(still) < len(left):  # restart the timeout whenever a process ends
                    until = time.monotonic() + _END_SECONDS
                left = still


def _options(count: int | None, profile: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if profile is None:
        options = {
            "controller": _controller(),
            "engines": _engines(),
            "engine_timeout": _START_SECONDS,
        }
    else:
        try:
            folder = ProfileDir.find_profile_dir_by_name(get_ipython_dir(), profile)
        except ProfileDirError:
            raise HPUError(
                f"The profile {profile!r} does not exist: create it with "
                f"ipython profile create {profile} --parallel."
            ) from None
        options = {"profile_dir": folder.location}
    return options if count is None else {**options, "n": count}


def _controller() -> type:
    """Return a launcher for a controller that imports nothing from the working directory.

    Engines may import from the working directory, because they run the notebook's code.
    """
    from ipyparallel.cluster.launcher import LocalControllerLauncher
    from traitlets import default

    class Controller(LocalControllerLauncher):  # type: ignore[misc]
        @default("controller_cmd")
        def _command(self) -> list[str]:
            return child_python.command("ipyparallel.controller")

        @default("environment")
        def _environment(self) -> dict[str, str]:
            return {"PYTHONPATH": child_python.environment().get("PYTHONPATH", "")}

        @default("connection_info_timeout")
        def _seconds(self) -> float:
            return _START_SECONDS

    return Controller


def _engines() -> type:
    """Return a launcher for engines that wait for a slow controller."""
    from ipyparallel.cluster.launcher import LocalEngineSetLauncher
    from traitlets import default

    class Engines(LocalEngineSetLauncher):  # type: ignore[misc]
        @default("engine_args")
        def _arguments(self) -> list[str]:
            return [f"--IPEngine.timeout={_START_SECONDS}"]

    return Engines


def how_ended(code: int | None) -> str:
    """Return how a process ended, such as ``was killed by SIGKILL``.

    `code` is the exit code that the parent process received. An exit code is negative if a signal
    ended the process, and None if it is unknown.
    """
    if code is None:
        return "ended"
    if code < 0:
        names = {each.value: each.name for each in signal.Signals}
        return f"was killed by {names.get(-code, f'signal {-code}')}"
    return f"ended with exit code {code}"
