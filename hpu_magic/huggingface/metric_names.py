"""Names in transformers' logs that are not metrics, or that have no chart by default."""

from __future__ import annotations

BOOKKEEPING = (
    *("_runtime", "_per_second", "_preparation_time", "_compilation_time", "_end_time"),
    " (GB)",  # GaudiTrainer's memory values; the panel measures memory itself
)
COUNTERS = ("epoch", "step", "total_flos", "num_input_tokens_seen", "num_tokens")
ON_REQUEST = ("grad_norm",)  # shown only if the user adds a chart for the metric
SUMMARY = "train_runtime"  # logged once at the end, together with averages over the fit
