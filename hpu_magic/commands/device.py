"""Commands for the device of this process: status, mode, flags, moving objects, and the doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from hpu_magic import notebook
from hpu_magic.commands.parameters import Movable

if TYPE_CHECKING:
    from hpu_magic.health import Diagnosis
    from hpu_magic.health.diagnosis import JsonRecord
    from hpu_magic.runtime.execution.flags import FlagsReport
    from hpu_magic.runtime.execution.kernel_restart import RestartReport
    from hpu_magic.runtime.execution.mode import ModeReport
    from hpu_magic.runtime.execution.status import CardReport, StatusReport

Dtype = Literal["bf16", "fp16", "fp32"]


def status(number: int | None = None) -> StatusReport | CardReport:
    """Show the device's card, mode, memory and versions, and the holders of all cards.

    Does not acquire a card or import torch.

    Parameters
    ----------
    number : int, optional
        Show only this card, for example 3 for HPU 3.

    Raises
    ------
    HPUError
        The machine has no card with this number.
    """
    from hpu_magic.runtime.execution import status

    if number is not None:
        return status.card_status(number)
    return status.current_status(notebook.cells())


def to(*objects: Movable, device: str = "hpu", dtype: Dtype | None = None) -> Any:
    """Move objects to the device, and return the moved object or a tuple of them.

    Modules, parameters and optimizers are moved in place: parameters stay the same objects, and
    tied weights stay tied. Tensors and containers are copied.

    Parameters
    ----------
    *objects : torch.nn.Module, torch.Tensor, torch.optim.Optimizer, or dict, list or tuple of them
        The objects to move.
    device : str
        ``hpu``, ``cpu``, or ``hpu:N`` to choose card N for a process that has no card yet.
    dtype : {"bf16", "fp16", "fp32"} or torch.dtype, optional
        Convert floating-point values to this dtype; by default, they keep their dtypes.

    Raises
    ------
    HPUError
        An object is not a tensor and does not contain any, or the objects do not fit on the device.
        Nothing was moved.
    """
    from hpu_magic.runtime.device.move import moved

    return moved(objects, device=device, dtype=dtype)


def mode(mode: Literal["eager", "lazy"] | None = None, *, restart: bool = False) -> ModeReport:
    """Show the execution mode of this process, or select another one.

    Eager mode is the default; lazy mode is a legacy mode that you must select. The mode is read
    once, when torch is imported. If you select a mode later, it is saved for this
    notebook and takes effect when the kernel restarts.

    Parameters
    ----------
    mode : {"eager", "lazy"}, optional
        The mode to use; by default, show the loaded and the requested mode.
    restart : bool
        Restart the kernel if a different mode is loaded or no mode is specified. Variables are
        lost.

    Raises
    ------
    HPUError
        The mode is unknown, or a script requests a mode that is not loaded.
    """
    from hpu_magic.runtime.execution.mode import request

    return request(mode, restart=restart, cells=notebook.cells())


def flags(
    name: str | None = None, value: str | None = None, *, restart: bool = False
) -> FlagsReport:
    """Show the documented flags of the runtime, with changed ones first, or set a flag.

    Flags are environment variables, and most are read once, when torch is imported. If you set a
    flag later, it is saved for this notebook and takes effect when the kernel restarts.

    Parameters
    ----------
    name : str, optional
        A flag, a prefix of several flags, or a word in their names or descriptions.
    value : str, optional
        The value to set; an empty value removes the setting.
    restart : bool
        Restart the kernel if the change requires it. Variables are lost.

    Raises
    ------
    HPUError
        The flag is unknown, does not accept this value, or cannot be set from this process.
    """
    from hpu_magic.runtime.execution.flags import show_or_set

    return show_or_set(name, value, restart=restart)


def restart(*, mode: Literal["eager", "lazy"] | None = None) -> RestartReport:
    """Restart the kernel now, which releases its card. Variables are lost.

    A process holds its card until it exits.

    Parameters
    ----------
    mode : {"eager", "lazy"}, optional
        The execution mode after the restart; by default, the mode does not change.

    Raises
    ------
    HPUError
        No Jupyter server can restart this process.
    """
    from hpu_magic.runtime.execution.kernel_restart import restart_now

    return restart_now(mode)


def doctor(*, all: bool = False, json: bool = False) -> Diagnosis | JsonRecord:
    """Check installation, versions, driver, cards, flags, folders and Jupyter, and suggest fixes.

    Does not acquire a card or import torch.

    Parameters
    ----------
    all : bool
        Also list each check that passed.
    json : bool
        Return all findings as a dict that prints as JSON and can be shared, because it does not
        contain names, folders or addresses.
    """
    from hpu_magic.health import Machine, examine

    diagnosis = examine(Machine.here(), everything=all)
    return diagnosis.to_dict() if json else diagnosis
