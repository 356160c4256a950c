"""Implement `hpu_magic.advise`, which suggests changes that speed up a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpu_magic import units
from hpu_magic.advice.observed import of_fit, of_ledger
from hpu_magic.advice.report import Advice, ordered
from hpu_magic.advice.suggestion import Suggestion
from hpu_magic.errors import HPUError
from hpu_magic.runtime.device import device
from hpu_magic.runtime.measure.ledger_report import LedgerReport
from hpu_magic.runtime.training.observation import Observation

if TYPE_CHECKING:
    from torch import nn


# Maps the precision names of frameworks to the dtypes of an estimate.
_DTYPES = {
    **dict.fromkeys(("32-true", "32", "fp32"), "fp32"),
    **dict.fromkeys(("bf16-mixed", "16-mixed", "fp16-mixed", "hmp"), "bf16-mixed"),
    **dict.fromkeys(("bf16-true", "16-true", "bf16"), "bf16"),
}
_OPTIMIZERS = ("adamw", "adam", "sgd", "adagrad", "fusedadamw", "fusedsgd", "fusedlamb")


def advise(
    model: nn.Module, *inputs: Any, observed: Any = None, name: str = "model", **arguments: Any
) -> Advice:
    """Return advice for a step; see `hpu_magic.advise`.

    ``name`` is the name of the model in the suggested code.
    """
    device.torch_with_hpu()
    from hpu_magic.advice.comparison import Comparison

    measurement = _measurement(observed)
    current = _autocast_precision(model)
    framework = None
    if isinstance(measurement, Observation):
        current |= _arguments_of(measurement)
        framework = measurement.settings.framework
    comparison = Comparison(model, inputs, current | arguments)
    found = [*comparison.suggestions(name, framework), *_observed(measurement)]
    base = comparison.base
    how = [f"{base.options.mode} mode", base.options.dtype, f"batch {base.batch}"]
    how += [base.options.optimizer] * base.options.train
    how += [str(base.layout)] * (base.layout.cards > 1)
    cards = f"{base.layout.cards} x " * (base.layout.cards > 1)
    subject = f"{base.model} on {cards}{base.card.name} ({', '.join(how)})"
    remarks = [_ESTIMATED] * bool(found) + [_UNMEASURED] * (measurement is None)
    return Advice(subject, ordered(found), tuple(remarks))


_ESTIMATED = (
    "Estimated gains have a band. Each change is estimated on its own, so the gains of several "
    "changes do not multiply."
)
_UNMEASURED = "To add suggestions based on measurements, pass the result of a fit as observed=."


def advise_on_fit(
    observation: Observation | None, subject: str, model: Any = None, *inputs: Any, **arguments: Any
) -> Advice:
    """Suggest changes based on a fit's measurements and, if a model is passed, on estimates."""
    if model is not None:
        return advise(model, *inputs, observed=observation, **arguments)
    if inputs or arguments:
        raise HPUError(
            "Estimates require the model as the first argument: call result.advice(model, batch)."
        )
    remarks = [_MEASURED]
    if observation is not None and observation.peak and observation.limit:
        used = units.usage(observation.peak, observation.limit)
        remarks.insert(0, f"The peak memory of the fit was {used}.")
    return Advice(subject, ordered(_observed(observation)), tuple(remarks))


_MEASURED = (
    "These gains are based on measurements. result.advice(model, batch) also estimates the gains "
    "from other dtypes, batch sizes, modes and fused operators."
)


def _measurement(observed: Any) -> Observation | LedgerReport | None:
    measurement = getattr(observed, "observed", observed)
    if measurement is None or isinstance(measurement, Observation | LedgerReport):
        return measurement
    raise HPUError(
        f"observed must be a fit result or a ledger report, got {type(measurement).__name__}: pass "
        "the result of hpu_magic.fit or %hpu_ledger last."
    )


def _observed(measurement: Observation | LedgerReport | None) -> list[Suggestion]:
    if measurement is None:
        return []
    if isinstance(measurement, Observation):
        return list(of_fit(measurement))
    return list(of_ledger(measurement))


def _autocast_precision(model: Any) -> dict[str, Any]:
    """Return the precision of the active autocast context, as keyword arguments of an estimate."""
    import torch
    from torch import nn

    autocast = isinstance(model, nn.Module) and torch.is_autocast_enabled("hpu")
    if autocast and any(weight.dtype is torch.float32 for weight in model.parameters()):
        return {"dtype": "bf16-mixed"}
    return {}


def _arguments_of(observation: Observation) -> dict[str, Any]:
    """Convert the settings of a fit to keyword arguments of an estimate."""
    settings = observation.settings
    arguments: dict[str, Any] = {}
    if observation.mode is not None:
        arguments["mode"] = observation.mode
    if settings.deepspeed is not None:
        # The number of cards and the other batch sizes determine the size of the entire batch.
        arguments["deepspeed"] = {
            name: value for name, value in settings.deepspeed.items() if name != "train_batch_size"
        }
    elif settings.precision in _DTYPES:
        arguments["dtype"] = _DTYPES[settings.precision]
    if settings.optimizer is not None and settings.optimizer.lower() in _OPTIMIZERS:
        arguments["optimizer"] = settings.optimizer.lower()
    if settings.accumulate is not None:
        arguments["accumulate"] = settings.accumulate
    if observation.ranks > 1:
        arguments["cards"] = observation.ranks
    return arguments
