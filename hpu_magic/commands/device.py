"""The device of this process and its machine: state, mode, flags, objects on it, and checks."""

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
    """Show the device: card, mode, memory, versions, and the holders of all cards.

    Takes no card and does not import torch.

    Parameters
    ----------
    number : int, optional
        Show only this card; 3 is HPU 3.

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
    """Move objects to the device and return them, as one object or a tuple.

    Modules, parameters and optimizers are moved in place: parameters stay the same objects, and
    tied weights stay tied. Tensors and containers are new objects.

    Parameters
    ----------
    *objects : torch.nn.Module, torch.Tensor, torch.optim.Optimizer, or dict, list or tuple of them
        The objects to move.
    device : str
        ``hpu``, ``cpu``, or ``hpu:N`` to choose card N for a process that has no card yet.
    dtype : {"bf16", "fp16", "fp32"} or torch.dtype, optional
        Convert floating-point values to this type; without it they keep their types.

    Raises
    ------
    HPUError
        An object is not a tensor and holds none, or the objects do not fit on the device. Nothing
        was moved.
    """
    from hpu_magic.runtime.device.move import moved

    return moved(objects, device=device, dtype=dtype)


def mode(mode: Literal["eager", "lazy"] | None = None, *, restart: bool = False) -> ModeReport:
    """Show the execution mode of this process, or choose another.

    The mode is read once, when torch is imported. A mode chosen later is remembered for this
    notebook and takes effect at the next start of the kernel.

    Parameters
    ----------
    mode : {"eager", "lazy"}, optional
        The mode to use; without it, the loaded and the requested mode are shown.
    restart : bool
        Restart the kernel if the loaded mode is another one, or if no mode is named. Variables are
        lost.

    Raises
    ------
    HPUError
        There is no such mode, or a script requests a mode other than the loaded one.
    """
    from hpu_magic.runtime.execution.mode import request

    return request(mode, restart=restart, cells=notebook.cells())


def flags(
    name: str | None = None, value: str | None = None, *, restart: bool = False
) -> FlagsReport:
    """Show the documented flags of the runtime, changed ones first, or set one.

    Flags are environment variables, and most are read once, when torch is imported. A flag that is
    set later is remembered for this notebook and takes effect at the next start of the kernel.

    Parameters
    ----------
    name : str, optional
        A flag, the beginning of several names, or a word in names or descriptions.
    value : str, optional
        The value to set; an empty value removes the setting.
    restart : bool
        Restart the kernel if the change needs it. Variables are lost.

    Raises
    ------
    HPUError
        There is no such flag, it does not accept this value, or it cannot be set from here.
    """
    from hpu_magic.runtime.execution.flags import show_or_set

    return show_or_set(name, value, restart=restart)


def restart(*, mode: Literal["eager", "lazy"] | None = None) -> RestartReport:
    """Restart the kernel now, which releases its card. Variables are lost.

    A card belongs to its process until the process ends.

    Parameters
    ----------
    mode : {"eager", "lazy"}, optional
        The execution mode after the restart; without it, the mode does not change.

    Raises
    ------
    HPUError
        No Jupyter server can restart this process.
    """
    from hpu_magic.runtime.execution.kernel_restart import restart_now

    return restart_now(mode)


def doctor(*, all: bool = False, json: bool = False) -> Diagnosis | JsonRecord:
    """Check installation, versions, driver, cards, flags, folders and Jupyter, and list the fixes.

    Loads no torch and takes no card.

    Parameters
    ----------
    all : bool
        List the checks that passed one by one, too.
    json : bool
        Return all findings as a dict that prints as JSON, without names, folders and addresses, to
        show to others.
    """
    from hpu_magic.health import Machine, examine

    diagnosis = examine(Machine.here(), everything=all)
    return diagnosis.to_dict() if json else diagnosis
