"""The commands listed by ``%hpu`` and ``%hpu?``, each as a line to type and its purpose."""

from __future__ import annotations

COMMANDS = (
    ("%hpu", "show card, mode, memory, versions and holders of all cards; %hpu 3 shows only HPU 3"),
    ("%hpu_to model,optimizer", "move objects to the card; --device cpu moves them back"),
    ("%%hpu_autocast --dtype bf16", "run this cell in mixed precision"),
    ("%hpu_autocast on", "run all later cells in mixed precision, until %hpu_autocast off"),
    (
        "%hpu_explain_autocast model --inputs x",
        "show the dtype of each operation under autocast, and why",
    ),
    ("%%hpu_time", "time this cell; %hpu_time model(x) times a statement (-n runs, -r repeats)"),
    (
        "%%hpu_memory",
        "show the memory of this cell and its peak; %hpu_memory lists the largest variables",
    ),
    ("%hpu_memory_live", "show memory in a live panel until %hpu_memory_live off"),
    (
        "%%hpu_fit",
        "train with a live panel; to train without a cell, type %hpu_fit trainer model data",
    ),
    ("%%hpu_profile --dir traces", "show a table of operators, and write a trace file"),
    (
        "%hpu_ledger on --show graphs,peak",
        "show the overhead of each cell until %hpu_ledger off; --show selects parts",
    ),
    ("%hpu_mode lazy --restart", "choose the execution mode, eager or lazy"),
    ("%hpu_flags NAME=VALUE", "set a flag of the runtime; %hpu_flags lists them"),
    ("%hpu_restart", "restart the kernel to release the card"),
    ("%%hpu_capture NAME --inputs x,y", "capture this cell in an HPU Graph (lazy mode)"),
    ("%hpu_replay NAME --runs 100", "replay a captured cell"),
    ("%hpu_graphs", "list the graphs; %hpu_graphs --delete NAME deletes one"),
    (
        "%hpu_wrap model --no-train",
        "run a model in HPU Graphs for inference or, with --train, for training",
    ),
    (
        "%hpu_fp8_measure model --inputs x",
        "FP8 inference, step 1: measure a bf16 model after model.eval(); --data takes a loader",
    ),
    (
        "%hpu_fp8_quantize model --inputs x",
        "FP8 inference, step 2: quantize the model after a restart",
    ),
    (
        "%%hpu_workers --cards 4",
        "run this cell on four workers; --push x,y sends variables, -o z returns them",
    ),
    ("%hpu_workers off", "stop the workers; on or restart starts them, %hpu_workers lists them"),
    (
        "%hpu_serve MODEL --cards 2",
        "serve a model with vLLM; the rest of the line is passed to vllm serve, off stops it",
    ),
    ("%%hpu_from_cuda", "convert this cell of CUDA code and run it; --show only converts it"),
    (
        "%hpu_estimate model --inputs x",
        "estimate the time and memory of a step; see --card, --cards and --no-train",
    ),
    (
        "%hpu_estimate_generation model --prompt 512 --new-tokens 128",
        "estimate the time and memory of text generation",
    ),
    (
        "%hpu_advise model --inputs x",
        "suggest changes that make a step faster; --apply N applies one",
    ),
    (
        "%%hpu_dry_run --card gaudi3 --push x",
        "run this cell on a card that computes nothing, to see whether it fits",
    ),
    ("%hpu_doctor", "find problems and show how to fix them; see --all and --json"),
)


def text() -> str:
    """Return the list formatted for the help text."""
    lines = [f"    {line}\n        {purpose}" for line, purpose in COMMANDS]
    return "\n".join(
        [
            "All commands::",
            "",
            *lines,
            "",
            "To see all options of a command, add a question mark, for example %hpu_to?.",
        ]
    )
