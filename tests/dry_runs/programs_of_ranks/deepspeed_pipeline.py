"""Training of DeepSpeed's pipeline of four stages; the first and last share a weight by default."""

import itertools
import sys

import deepspeed
import torch
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
from torch import nn

WORDS, WIDTH, MICROBATCHES = 1000, 64, 8


def head(embedding, x):
    """Return the logits of hidden states."""
    return nn.functional.linear(x, embedding.weight)


def cross_entropy(logits, words):
    """Return the loss of all positions."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), words.flatten())


deepspeed.init_distributed()
torch.manual_seed(0)
if "untied" in sys.argv:
    ends = LayerSpec(nn.Embedding, WORDS, WIDTH), LayerSpec(nn.Linear, WIDTH, WORDS)
else:
    shared = "embedding", nn.Embedding, WORDS, WIDTH
    ends = TiedLayerSpec(*shared), TiedLayerSpec(*shared, forward_fn=head)
layer = LayerSpec(nn.TransformerEncoderLayer, WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
module = PipelineModule(
    [ends[0], *[layer] * 6, ends[1]],
    num_stages=4,
    loss_fn=cross_entropy,
    partition_method="uniform",
)
engine, *_ = deepspeed.initialize(
    model=module,
    model_parameters=module.parameters(),
    config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": MICROBATCHES,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "steps_per_print": 10**9,
    },
)
words = torch.randint(0, WORDS, (4, 33), generator=torch.Generator().manual_seed(1))
batches = itertools.repeat((words[:, :-1], words[:, 1:]))
for _ in range(3):
    print(engine.train_batch(data_iter=batches).item())
