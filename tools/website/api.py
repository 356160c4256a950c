"""Reference pages for functions and classes: one per public name, generated from its docstring."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# Maps groups to public names, and names to the classes of their results on the same page.
FUNCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "Device and execution": {
        "status": (
            "runtime.execution.status.StatusReport",
            "runtime.execution.status.CardReport",
        ),
        "to": (),
        "mode": ("runtime.execution.mode.ModeReport",),
        "flags": ("runtime.execution.flags.FlagsReport",),
        "restart": ("runtime.execution.kernel_restart.RestartReport",),
        "doctor": ("health.Diagnosis", "health.Finding"),
    },
    "Precision": {
        "autocast": (
            "runtime.precision.autocast.Autocast",
            "runtime.precision.autocast.AutocastReport",
        ),
        "explain_autocast": ("runtime.precision.explain.AutocastExplanation",),
        "fp8_measure": ("runtime.precision.fp8.measure.MeasureReport",),
        "fp8_quantize": ("runtime.precision.fp8.quantize.QuantizeReport",),
    },
    "Train": {
        "fit": ("fits.result.FitResult",),
        "watch": ("fits.watch.Watch",),
        "memory_live": ("panels.panel.MemoryPanel",),
        "workers": ("parallel.workers_report.WorkersReport",),
        "serve": ("serving.report.ServerReport",),
    },
    "Measure": {
        "memory": ("runtime.measure.memory.MemoryReport",),
        "time": ("runtime.measure.timing.TimeReport",),
        "ledger": (
            "runtime.measure.ledger.Ledger",
            "runtime.measure.ledger_report.LedgerReport",
        ),
        "profile": ("runtime.measure.profiling.ProfileReport",),
    },
    "HPU Graphs": {
        "capture": ("runtime.graphs.graphs.CapturedGraph",),
        "replay": ("runtime.graphs.graphs.ReplayReport",),
        "graphs": ("runtime.graphs.graphs.GraphList",),
        "wrap": ("runtime.graphs.wrapping.WrapReport",),
    },
    "Before the card": {
        "estimate": ("estimates.result.Estimate",),
        "estimate_generation": ("estimates.generation.result.GenerationEstimate",),
        "estimate_collective": ("estimates.collective.CollectiveEstimate",),
        "trace": ("estimates.traced_step.TracedStep",),
        "dry_run": (
            "dry_runs.report.DryRun",
            "dry_runs.rank_result.RankResult",
            "dry_runs.step_time.StepTime",
        ),
        "advise": ("advice.report.Advice", "advice.suggestion.Suggestion"),
        "from_cuda": ("runtime.porting.report.PortReport", "runtime.porting.findings.LineFinding"),
    },
}
ERRORS = ("HPUError", "estimates.errors.EstimateError")

_HEAD = """\
# Functions and classes

`import hpu_magic` imports neither torch nor plotting libraries. Each name below is imported on
first use. Results are objects. Notebooks show them as tables, and other front ends show them as
text. Their attributes contain the figures.

"""
_LIGHTNING = """\
Classes for Lightning's `Trainer`. `import hpu_magic.lightning` registers the accelerator and the
strategies, so that `Trainer(accelerator="hpu")` finds them. The classes for `Fabric` have the same
names in `hpu_magic.lightning.fabric`.
"""


def write(into: Path) -> None:
    """Write the pages: ``api/*.rst`` and ``api/index.md``."""
    folder = into / "api"
    folder.mkdir(parents=True)
    lightning()  # the first import prints a message, which this function suppresses
    parts, pages = [_HEAD], []
    for group, names in FUNCTIONS.items():
        lines = [f"- [`hpu_magic.{name}`]({name}.rst): {_summary(name)}" for name in names]
        parts.append(f"## {group}\n\n" + "\n".join(lines) + "\n")
        pages += names
        for name, classes in names.items():
            (folder / f"{name}.rst").write_text(_function(name, classes))
    parts.append(
        "## More\n\n- [`hpu_magic.lightning`](lightning.rst): classes for Lightning's `Trainer`\n"
        "- [Errors](errors.rst)\n"
    )
    (folder / "lightning.rst").write_text(_lightning())
    refusals = "".join(f".. autoexception:: hpu_magic.{name}(sentence)\n\n" for name in ERRORS)
    (folder / "errors.rst").write_text(_titled("Errors") + refusals)
    # Short names that fit into the site's navigation.
    contents = "\n".join([*(f"{name} <{name}>" for name in (*pages, "lightning")), "errors"])
    parts.append(f"```{{toctree}}\n:hidden:\n\n{contents}\n```\n")
    (folder / "index.md").write_text("\n".join(parts))


def documented(name: str) -> Any:
    """Return the object of a public name; for a callable module, its ``__call__``."""
    import hpu_magic

    value = getattr(hpu_magic, name)
    return type(value).__call__ if isinstance(value, type(hpu_magic)) else value


def lightning() -> Any:
    """Return `hpu_magic.lightning`, suppressing the message that its import prints."""
    with contextlib.redirect_stderr(io.StringIO()):
        import hpu_magic.lightning as lightning
    return lightning


def _summary(name: str) -> str:
    from website.text import from_docstring

    return from_docstring((documented(name).__doc__ or "").strip().partition("\n\n")[0])


def _function(name: str, classes: Iterable[str]) -> str:
    kind = "class" if isinstance(documented(name), type) else "function"
    members = "   :members:\n" if kind == "class" else ""
    own = f".. auto{kind}:: hpu_magic.{name}\n{members}\n"
    return _titled(f"hpu_magic.{name}") + own + _classes(classes)


def _lightning() -> str:
    parts = [_titled("hpu_magic.lightning"), _LIGHTNING, ""]
    for name in lightning().__all__:
        kind = "class" if isinstance(getattr(lightning(), name), type) else "function"
        parts.append(f".. auto{kind}:: hpu_magic.lightning.{name}\n")
    return "\n".join(parts)


def _classes(names: Iterable[str]) -> str:
    return "".join(f".. autoclass:: hpu_magic.{name}\n   :members:\n\n" for name in names)


def _titled(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n"
