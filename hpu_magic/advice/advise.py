"""`hpu_magic.advise`: what would make a step faster, what gains most first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_magic import units
from hpu_magic.advice.observed import of_fit, of_ledger
from hpu_magic.advice.report import Advice, ordered
from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.ledger_report import LedgerReport
from hpu_magic.runtime.training.observation import Observation

if TYPE_CHECKING:
    from torch import nn


# In the words of frameworks: an estimate's.
_PRECISIONS = {
    **dict.fromkeys(("32-true", "32", "fp32"), "fp32"),
    **dict.fromkeys(("bf16-mixed", "16-mixed", "fp16-mixed", "hmp"), "bf16-mixed"),
    **dict.fromkeys(("bf16-true", "16-true", "bf16"), "bf16"),
}
_OPTIMIZERS = ("adamw", "adam", "sgd", "adagrad", "fusedadamw", "fusedsgd", "fusedlamb")


def advise(
    model: nn.Module, *inputs: Any, observed: Any = None, name: str = "model", **arguments: Any
) -> Advice:
    """Return the advice on a step; see `hpu_magic.advise`.

    ``name`` is the name of the model in the code that is shown.
    """
    device.torch_with_hpu()
    from hpu_magic.advice.weighing import Scale

    seen = _measured(observed)
    given = _cast_here(model)
    if isinstance(seen, Observation):
        given |= _as_seen(seen)
    scale = Scale(model, inputs, given | arguments)
    framework = seen.settings.framework if isinstance(seen, Observation) else None
    found = [*scale.suggestions(name, framework), *_of(seen)]
    base = scale.base
    how = [f"{base.options.mode} mode", base.options.precision, f"batch {base.batch}"]
    how += [base.options.optimizer] * base.options.train
    how += [str(base.layout)] * (base.layout.cards > 1)
    cards = f"{base.layout.cards} x " * (base.layout.cards > 1)
    subject = f"{base.model} on {cards}{base.card.name} ({', '.join(how)})"
    remarks = [_ESTIMATED] * bool(found) + [_UNMEASURED] * (seen is None)
    return Advice(subject, ordered(found), tuple(remarks))


_ESTIMATED = (
    "Estimated gains have a band, and each change is estimated alone: the gains of several do not "
    "multiply."
)
_UNMEASURED = "observed=, the result of a fit, adds what was measured."


def advise_on_fit(
    seen: Observation | None, subject: str, model: Any = None, *inputs: Any, **arguments: Any
) -> Advice:
    """List what a fit showed, and with a model and its inputs what estimates say as well.

    Raises
    ------
    HPUError
        As `advise`.
    """
    if model is not None:
        return advise(model, *inputs, observed=seen, **arguments)
    if inputs or arguments:
        raise HPUError("advice estimates a model's step: write result.advice(model, inputs).")
    remarks = [_MEASURED]
    if seen is not None and seen.peak_memory is not None and seen.memory_limit:
        used = units.usage(seen.peak_memory, seen.memory_limit)
        remarks.insert(0, f"The fit used {used} of the card's memory at most.")
    return Advice(subject, ordered(_of(seen)), tuple(remarks))


_MEASURED = (
    "These were measured. result.advice(model, inputs) estimates as well what dtype, batch, "
    "mode and fused operators would gain."
)


def _measured(observed: Any) -> Observation | LedgerReport | None:
    seen = getattr(observed, "observed", observed)
    if seen is None or isinstance(seen, Observation | LedgerReport):
        return seen
    raise HPUError(
        f"observed is the result of a fit or the report of a ledger, not a {type(seen).__name__}: "
        "give what hpu_magic.fit returns, or %hpu_ledger last."
    )


def _of(seen: Observation | LedgerReport | None) -> list[Any]:
    if seen is None:
        return []
    return list(of_fit(seen) if isinstance(seen, Observation) else of_ledger(seen))


def _cast_here(model: Any) -> dict[str, Any]:
    """Return the precision that autocast gives a step here, as an argument of an estimate."""
    import torch
    from torch import nn

    casts = isinstance(model, nn.Module) and torch.is_autocast_enabled("hpu")
    if casts and any(one.dtype is torch.float32 for one in model.parameters()):
        return {"dtype": "bf16-mixed"}
    return {}


def _as_seen(seen: Observation) -> dict[str, Any]:
    """Return how a fit ran, as arguments of an estimate."""
    settings = seen.settings
    given: dict[str, Any] = {}
    if seen.mode is not None:
        given["mode"] = seen.mode
    if settings.precision in _PRECISIONS:
        given["dtype"] = _PRECISIONS[settings.precision]
    if settings.optimizer is not None and settings.optimizer.lower() in _OPTIMIZERS:
        given["optimizer"] = settings.optimizer.lower()
    if settings.accumulate is not None:
        given["accumulate"] = settings.accumulate
    if seen.ranks > 1:
        given["cards"] = seen.ranks
    return given
