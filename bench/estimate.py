"""Cost of tracing a Llama training step: time relative to fake tensors, and host memory for 70B.

The baseline runs the same forward and backward passes on PyTorch's fake tensors, without recording
the operations.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from time import process_time

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import LlamaConfig, LlamaForCausalLM

from bench.harness import Figure, fresh_process, in_turn, quiet_ratio
from hpu_magic.estimates.tracing import twins
from hpu_magic.estimates.tracing.optimizers import maker
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

SIZES = {
    "7B": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
    "70B": {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
}
ROUNDS = 12


def llama(size: str) -> LlamaForCausalLM:
    """Return a bfloat16 model on the meta device, which uses no memory."""
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(use_cache=False, **SIZES[size]))
    return model.to(torch.bfloat16)


def tracing(model: LlamaForCausalLM) -> Callable[[], object]:
    """Return a function that traces a training step on one sequence of 2,048 tokens."""
    tokens = torch.zeros(1, 2048, dtype=torch.int64)
    batch = {"input_ids": tokens, "labels": tokens}
    return lambda: trace_step(model, (), batch, StepOptions(optimizer=maker("adamw")))


def fake_tensors_alone(model: LlamaForCausalLM) -> Callable[[], None]:
    """Return a function that runs the same forward and backward pass on fake tensors."""

    def run() -> None:
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        with fake, twins.fake_tensors(model, None, training=True):
            tokens = torch.zeros(1, 2048, dtype=torch.int64, device="hpu")
            model(input_ids=tokens, labels=tokens).loss.backward()

    return run


def most_memory() -> float:
    """Return this process's peak memory while it traces a step of the 70B model, in GiB."""
    tracing(llama("70B"))()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def figures() -> Iterator[Figure]:
    model = llama("7B")
    pairs = in_turn(fake_tensors_alone(model), tracing(model), ROUNDS, clock=process_time)
    name = "Llama 7B: traced training step / fake tensors only"
    yield Figure(name, quiet_ratio(pairs), "ratio", 1.5)
    code = "from bench.estimate import most_memory; print(most_memory())"
    host = float(fresh_process(code).splitlines()[-1])
    yield Figure("Llama 70B: host memory to trace a training step", host, "GiB", 2.0)
