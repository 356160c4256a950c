"""Derive suggestions from the measurements of a fit or a ledger."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import hpu_magic
from hpu_magic import units
from hpu_magic.advice.suggestion import Gain, Suggestion, measured
from hpu_magic.runtime.measure.ledger_report import COMPILATION, FALLBACK, WAIT, Entry, LedgerReport
from hpu_magic.runtime.training.observation import SETTLED, FitSettings, Observation

_LEAST_SHARE = 0.02  # fraction of the training time
_LINES_SHOWN = 3
_OURS = os.path.join(os.path.dirname(hpu_magic.__file__), "")


def of_fit(observation: Observation) -> Iterator[Suggestion]:
    """Yield suggestions based on measurements of a fit."""
    yield from _waiting(observation)
    yield from _shapes(observation)
    yield from _fallbacks(observation.counts.fallbacks, observation.ledger, observation)
    if observation.ledger is not None:
        yield from _host_reads(observation.ledger, observation.training_seconds)


def of_ledger(report: LedgerReport) -> Iterator[Suggestion]:
    """Yield suggestions based on a ledger alone, without the training time of a fit."""
    causes = report.causes(COMPILATION)
    if report.compilations > 1:
        yield Suggestion(
            "Keep shapes the same",
            f"{report.compilations} graphs were compiled in "
            f"{units.duration(report.compile_seconds)}{_lines(causes)}.",
            _PAD,
            by_hand=_YOUR_SHAPES,
        )
    yield from _fallbacks(report.fallbacks, report, None)
    yield from _host_reads(report, None)


def _waiting(seen: Observation) -> Iterator[Suggestion]:
    share, loader = seen.waited_share, seen.settings.loader
    if share is None or seen.waited_seconds is None or share < _LEAST_SHARE:
        return
    if loader is None:
        yield Suggestion(
            "Load batches during training",
            _waited(seen.waited_seconds, share),
            "loader = DataLoader(..., num_workers=4, pin_memory=True, persistent_workers=True)",
            measured(share),
            by_hand=YOUR_LOADER,
        )
        return
    first = seen.first_batches_seconds / seen.training_seconds
    starts = loader.workers and not loader.persistent and seen.epochs > 1
    if starts and first >= _LEAST_SHARE:
        again = first * (seen.epochs - 1) / seen.epochs
        yield Suggestion(
            "Keep the loader's worker processes between epochs",
            f"{_waited(seen.first_batches_seconds, first)} This was the wait for the first batches "
            f"of {seen.epochs} epochs, each of which starts {_workers(loader.workers)}.",
            _loader_code(seen.settings, persistent=True),
            measured(again),
            by_hand=YOUR_LOADER,
        )
        share = max(0.0, share - first)
    if share >= _LEAST_SHARE:
        more = max(4, 2 * loader.workers)
        title = (
            "Load batches in worker processes" if not loader.workers else "Load with more workers"
        )
        pinned = "" if loader.pinned or not seen.device.startswith("hpu") else ", in pinned memory"
        source = _workers(loader.workers) if loader.workers else "the training process"
        yield Suggestion(
            title + pinned,
            f"{_waited(share * seen.training_seconds, share)} They were loaded by {source}.",
            _loader_code(
                seen.settings,
                workers=more,
                pinned=bool(pinned),
                persistent=not loader.persistent and seen.epochs > 1 and not starts,
            ),
            measured(share),
            by_hand=YOUR_LOADER,
        )


YOUR_LOADER = "your code creates the loader"
_YOUR_SHAPES = "the shapes of your data vary"
_YOUR_CODE = "it requires changes to your code"


def _waited(seconds: float, share: float) -> str:
    return f"Training spent {units.duration(seconds)} waiting for batches, {share:.0%} of its time."


def _workers(count: int) -> str:
    return f"{count} worker process{'' if count == 1 else 'es'}"


def _loader_code(
    settings: FitSettings, workers: int = 0, *, pinned: bool = False, persistent: bool = False
) -> str:
    """Return code that creates the loader with the changed options."""
    options = [f"num_workers={workers}"] * bool(workers)
    options += ["pin_memory=True"] * pinned + ["persistent_workers=True"] * persistent
    if settings.framework == "transformers":
        arguments = ", ".join(f"dataloader_{option}" for option in options)
        return f"args = TrainingArguments(..., {arguments})"
    return f"loader = DataLoader(..., {', '.join(options)})"


def _shapes(seen: Observation) -> Iterator[Suggestion]:
    later, training = seen.later, seen.training_seconds
    if not later.compilations:
        return
    share = later.compile_seconds / training if training else 0.0
    causes = [] if seen.ledger is None else seen.ledger.causes(COMPILATION)
    yield Suggestion(
        "Keep shapes the same",
        f"{_many(later.compilations, 'graph')} compiled after the first {SETTLED} steps, which "
        f"took {units.duration(later.compile_seconds)}, {share:.0%} of the training "
        f"time{_lines(causes)}.",
        _PAD_TRANSFORMERS if seen.settings.framework == "transformers" else _PAD,
        measured(share) if share >= _LEAST_SHARE else None,
        by_hand=_YOUR_SHAPES,
    )


_PAD = """length = -(-batch.shape[1] // 128) * 128  # the next multiple of 128
batch = torch.nn.functional.pad(batch, (0, length - batch.shape[1]))
loader = DataLoader(..., drop_last=True)"""
_PAD_TRANSFORMERS = """collator = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=128)
args = TrainingArguments(..., dataloader_drop_last=True)"""


def _fallbacks(
    fallbacks: dict[str, int], report: LedgerReport | None, seen: Observation | None
) -> Iterator[Suggestion]:
    causes = [] if report is None else report.causes(FALLBACK)
    for operator, count in sorted(fallbacks.items(), key=lambda item: -item[1]):
        own = [cause for cause in causes if _short(cause.name) == _short(operator)]
        lines = _lines(own)
        if not lines and report is None:
            lines = "; to see the lines, run %hpu_ledger on before a fit"
        yield Suggestion(
            f"Keep {operator} off the CPU",
            f"{_many(count, 'call')} had no kernel on the card and fell back to the CPU, with "
            f"copies in both directions{lines}.",
            _without(_short(operator), None if seen is None else seen.settings.framework),
            _lost(own, None if seen is None else seen.training_seconds),
            by_hand=_YOUR_CODE,
        )


def _without(operator: str, framework: str | None) -> str:
    """Return code that avoids an operator, such as an alternative to a fused optimizer."""
    optimizer = _FUSED_OPTIMIZERS.get(operator)
    if optimizer == "AdamW" and framework == "transformers":
        return 'args = TrainingArguments(..., optim="adamw_torch")'
    if optimizer is not None:
        return f"optimizer = torch.optim.{optimizer}(model.parameters(), lr=..., fused=False)"
    return (
        "# move this operator out of the step, or use operators that the card supports\n"
        f"torch.ops.aten.{operator}"
    )


_FUSED_OPTIMIZERS = {
    "_fused_adamw_": "AdamW",
    "_fused_adam_": "Adam",
    "_fused_sgd_": "SGD",
    "_fused_adagrad_": "Adagrad",
}


def _short(operator: str) -> str:
    return operator.rpartition("::")[2]


def _host_reads(report: LedgerReport, training: float | None) -> Iterator[Suggestion]:
    # Reads by the panel itself cannot be avoided.
    causes = [cause for cause in report.causes(WAIT) if not cause.file.startswith(_OURS)]
    total = sum(cause.count for cause in causes)
    if total <= 1:
        return
    yield Suggestion(
        "Read values less often",
        f"The host waited for a value from the device {total} times{_lines(causes)}.",
        "losses.append(loss.detach())  # in the loop\n"
        "values = torch.stack(losses).tolist()  # one wait, after the loop",
        _lost(causes, training),
        by_hand=_YOUR_CODE,
    )


def _lost(causes: Sequence[Entry], training: float | None) -> Gain | None:
    seconds = sum(cause.seconds for cause in causes)
    if not training or seconds < _LEAST_SHARE * training:
        return None
    return measured(seconds / training)


def _lines(causes: Sequence[Entry]) -> str:
    """Return the most frequent causes and their lines, for example ``: 12 at cell 3, line 5``."""
    placed = sorted((cause for cause in causes if cause.where), key=lambda cause: -cause.count)
    if not placed:
        return ""
    named = [f"{cause.count} at {cause.where}{_shape(cause)}" for cause in placed[:_LINES_SHOWN]]
    more = len(placed) - _LINES_SHOWN
    return f": {', '.join(named)}" + (f", and at {more} more" if more > 0 else "")


def _shape(cause: Entry) -> str:
    return f" ({cause.shapes[:48]})" if cause.shapes else ""


def _many(count: int, what: str) -> str:
    return (
        f"{count} {what}{' was' if what == 'graph' and count == 1 else ''}"
        if count == 1
        else (f"{count} {what}s{' were' if what == 'graph' else ''}")
    )
