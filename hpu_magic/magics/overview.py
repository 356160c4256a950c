"""The commands listed by ``%hpu`` and ``%hpu?``, each as a line to type and its purpose."""

from __future__ import annotations

COMMANDS = (
    ("%hpu", "card, mode, memory, versions, holders of all cards; %hpu 3 shows only HPU 3"),
    ("%hpu_to model,optimizer", "move objects to the card; --device cpu moves them back"),
    ("%%hpu_autocast --dtype bf16", "run this cell in mixed precision"),
    ("%hpu_autocast on", "run all later cells in mixed precision, until %hpu_autocast off"),
    ("%hpu_explain_autocast model --inputs x", "dtype of each operation, and the reason"),
    ("%%hpu_time", "time this cell; %hpu_time model(x) times a statement (-n runs, -r repeats)"),
    (
        "%%hpu_memory",
        "memory of this cell and its peak; %hpu_memory lists the largest variables",
    ),
    ("%hpu_memory_live", "live memory panel while other cells run, until %hpu_memory_live off"),
    ("%%hpu_fit", "train with the live panel; %hpu_fit trainer model data without a cell"),
    ("%%hpu_profile --dir traces", "table of operators, and a trace file"),
    (
        "%hpu_ledger on --show graphs,peak",
        "line with the overhead of each cell, until %hpu_ledger off; without --show, all parts",
    ),
    ("%hpu_mode lazy --restart", "choose the execution mode, eager or lazy"),
    ("%hpu_flags NAME=VALUE", "set a flag of the runtime; %hpu_flags lists them"),
    ("%hpu_restart", "restart the kernel, which releases the card"),
    ("%%hpu_capture NAME --inputs x,y", "capture this cell in an HPU Graph (lazy mode)"),
    ("%hpu_replay NAME --runs 100", "replay a captured cell"),
    ("%hpu_graphs", "list the graphs; %hpu_graphs --delete NAME deletes one"),
    (
        "%hpu_wrap model --no-train",
        "run a model in HPU Graphs for inference, or --train",
    ),
    (
        "%hpu_fp8_measure model --inputs x",
        "FP8 inference: measure a model in bf16 after model.eval() (or --data loader)",
    ),
    ("%hpu_fp8_quantize model --inputs x", "second step, in a new process: quantize"),
    ("%%hpu_workers --cards 4", "run this cell on four workers (--push x,y before, -o z after)"),
    ("%hpu_workers off", "stop the workers; on and restart start them, %hpu_workers lists them"),
    ("%%hpu_from_cuda", "convert this cell of CUDA code and run it; --show only converts"),
    ("%hpu_estimate model --inputs x", "time and memory of a step: --card, --cards, --no-train"),
    (
        "%hpu_estimate_generation model --prompt 512 --new-tokens 128",
        "time and memory of text generation",
    ),
    ("%hpu_advise model --inputs x", "changes that make a step faster; --apply N makes one"),
    ("%hpu_doctor", "problems and their fixes; --all, --json"),
)


def text() -> str:
    """Return the list as text for the help."""
    lines = [f"    {line}\n        {purpose}" for line, purpose in COMMANDS]
    return "\n".join(["All commands::", "", *lines, "", "%hpu_to? shows all options of one."])
