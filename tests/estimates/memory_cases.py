"""Various models, batches and optimizers, and the memory of their steps on a card."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "huggingface"))
import tiny_models

Batch = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A step: model, batch, optimizer and options."""

    model: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    loss: Callable[[Any], torch.Tensor] | None = None
    autocast: torch.dtype | None = None
    dtype: torch.dtype | None = None
    accumulating: bool = False

    @property
    def train(self) -> bool:
        return self.optimizer is not None


def given(*args: Any, **kwargs: Any) -> Callable[[], Batch]:
    """Return a function that creates a batch of random numbers; tensors are not replaced."""

    def make() -> Batch:
        def one(value: Any) -> Any:
            return torch.randn(value) if isinstance(value, tuple) else value

        return tuple(map(one, args)), {name: one(value) for name, value in kwargs.items()}

    return make


def of(kind: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """Return a function that creates an optimizer for parameters."""
    return lambda parameters: kind(parameters, lr=1e-3, **options)


def mlp() -> nn.Module:
    layers = [nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers)


class Cnn(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        widths = (3, 16, 32, 32)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), norm(b), nn.ReLU())
                for a, b in pairwise(widths)
            ),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(512, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, stride=2, padding=3)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(16, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(inplace=True),
                nn.Conv2d(16, 16, 3, padding=1, groups=4),
                nn.BatchNorm2d(16),
            )
            for _ in range(3)
        )
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(x), 2)
        for block in self.blocks:
            x = F.relu(x + block(x))
        return self.head(x.mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._double(3, 16), self._double(16, 32)])
        self.middle = self._double(32, 64)
        self.up = nn.ModuleList(
            [nn.ConvTranspose2d(64, 32, 2, stride=2), nn.ConvTranspose2d(32, 16, 2, stride=2)]
        )
        self.join = nn.ModuleList([self._double(64, 32), self._double(32, 16)])
        self.last = nn.Conv2d(16, 2, 1)

    @staticmethod
    def _double(a: int, b: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1),
            nn.GroupNorm(4, b),
            nn.SiLU(),
            nn.Conv2d(b, b, 3, padding=1),
            nn.GroupNorm(4, b),
            nn.SiLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for down in self.down:
            x = down(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return F.interpolate(self.last(x), scale_factor=2, mode="bilinear")


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], **options: Any) -> None:
        super().__init__()
        self.table = nn.Embedding(500, 32)
        self.layers = kind(32, 48, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(48 * (2 if options.get("bidirectional") else 1), 20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.table(tokens))[0])


class Cells(nn.Module):
    """An LSTM cell that is called in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(24, 40)
        self.head = nn.Linear(40, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for each in x.unbind(1):
            state = self.cell(each, state)
        assert state is not None
        return self.head(state[0])


class Attention(nn.Module):
    """Attention in one of several implementations."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.inner = nn.Linear(64, 192)
        self.outer = nn.Linear(64, 64)
        self.module = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        if self.how == "module":
            return self.module(x, x, x, need_weights=False)[0]
        if self.how == "weights":
            return self.module(x, x, x, need_weights=True)[0]
        b, t, d = x.shape
        q, k, v = self.inner(x).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        if self.how == "plain":
            scores = q @ k.transpose(-1, -2) / 4
            scores = scores.masked_fill(torch.ones(t, t, device=x.device).triu(1).bool(), -1e9)
            out = F.dropout(scores.softmax(-1), 0.1, self.training) @ v
        elif self.how == "causal":
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif self.how == "masked":
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        elif self.how == "fused":
            from habana_frameworks.torch.hpex.kernels import FusedSDPA

            out = FusedSDPA.apply(q, k, v, None, 0.0, True)
        else:
            out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
        return self.outer(out.transpose(1, 2).reshape(b, t, d))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2000, 32)
        self.layer = nn.Linear(32, 32)
        self.head = nn.Linear(32, 2000, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.table(tokens)).tanh())


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(64, 64)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))
            for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class LoRA(nn.Module):
    """Frozen layers with trained adapters of low rank."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.ModuleList(nn.Linear(128, 128) for _ in range(4)).requires_grad_(False)
        self.down = nn.ModuleList(nn.Linear(128, 4, bias=False) for _ in range(4))
        self.up = nn.ModuleList(nn.Linear(4, 128, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for base, down, up in zip(self.base, self.down, self.up, strict=True):
            x = F.silu(base(x) + up(down(x)))
        return x


class Tabular(nn.Module):
    """Sums of embeddings of categories, combined with numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, 16) for n in (1000, 300, 50))
        self.bags = nn.EmbeddingBag(400, 16, mode="sum")
        self.numbers = nn.Linear(13, 16)
        self.over = nn.Sequential(nn.Linear(80, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(
        self, *, categories: torch.Tensor, bags: torch.Tensor, numbers: torch.Tensor
    ) -> Any:
        found = [table(categories[:, n]) for n, table in enumerate(self.tables)]
        return self.over(torch.cat([*found, self.bags(bags), self.numbers(numbers)], 1))


class Convolved1d(nn.Module):
    """Audio: gated convolutions over time with weight norm, and a spectrum of the input."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(
            norm(nn.Conv1d(a, 32, 5, padding=2 * d, dilation=d))
            for a, d in ((1, 1), (16, 2), (16, 4))
        )
        self.norm = nn.InstanceNorm1d(16, affine=True)
        self.head = nn.Conv1d(16, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = F.glu(layer(x), 1)
        return self.head(self.norm(x))


class Autoencoder(nn.Module):
    """Variational autoencoder, whose activations include random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(200, 128), nn.LeakyReLU(), nn.Linear(128, 32))
        self.decode = nn.Sequential(nn.Linear(16, 128), nn.ELU(), nn.Linear(128, 200), nn.Sigmoid())

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        mean, spread = self.encode(x).chunk(2, 1)
        code = mean + torch.randn_like(mean) * (spread / 2).exp()
        drawn = self.decode(code)
        parted = 0.5 * (mean**2 + spread.exp() - 1 - spread).sum(1).mean()
        return {"drawn": drawn, "loss": F.binary_cross_entropy(drawn, x.sigmoid()) + parted}


class Graphs(nn.Module):
    """Graph network, which passes messages along edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer in (self.first, self.second):
            x = layer(x)
            sent = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
            x = (x + sent).relu()
        return x.log_softmax(-1)


class Rotary(nn.Module):
    """Block of a decoder with the vendor's fused operators."""

    def __init__(self) -> None:
        super().__init__()
        from habana_frameworks.torch.hpex.normalization import FusedRMSNorm

        self.fused = FusedRMSNorm
        self.scale = nn.Parameter(torch.ones(64))
        self.gate, self.up, self.down = nn.Linear(64, 192), nn.Linear(64, 192), nn.Linear(192, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            y = self.fused.apply(x, self.scale, 1e-6)
            x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return x


def mean_square(output: torch.Tensor) -> torch.Tensor:
    return output.float().pow(2).mean()


def cross_entropy(output: torch.Tensor) -> torch.Tensor:
    labels = torch.zeros(output.shape[:-1], dtype=torch.int64, device=output.device)
    return F.cross_entropy(output.flatten(0, -2), labels.flatten())


def torch_transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def seq2seq() -> nn.Module:
    return nn.Transformer(32, 4, 1, 1, 64, batch_first=True)


def huggingface(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: tiny_models.MODELS[name][0](**options)


def rows(name: str, repeats: int = 8) -> Callable[[], Batch]:
    """Return a function that creates a repeated batch of a tiny model."""

    def make() -> Batch:
        batch = tiny_models.MODELS[name][1]()
        return (), {key: torch.cat([one] * repeats) for key, one in batch.items()}

    return make


def text(rows: int = 8, length: int = 64) -> Callable[[], Batch]:
    return lambda: ((), tiny_models.text(rows, length))


def bf16(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().to(torch.bfloat16)


def peft_llama() -> nn.Module:
    from peft import LoraConfig, get_peft_model

    adapters = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.05)
    return get_peft_model(tiny_models.llama(), adapters)


def checkpointed_llama() -> nn.Module:
    model = tiny_models.llama()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def tokens(*shape: int, most: int = 400) -> torch.Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(0))


def muon(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Muon([one for one in parameters if one.dim() == 2], lr=1e-3)


def fused_adamw(parameters: Any) -> torch.optim.Optimizer:
    from habana_frameworks.torch.hpex.optimizers import FusedAdamW

    return FusedAdamW(parameters, lr=1e-3)


def fused_sgd(parameters: Any) -> torch.optim.Optimizer:
    from habana_frameworks.torch.hpex.optimizers import FusedSGD

    return FusedSGD(parameters, lr=1e-3, momentum=0.9)


def fused_lamb(parameters: Any) -> torch.optim.Optimizer:
    from habana_frameworks.torch.hpex.optimizers import FusedLamb

    return FusedLamb(parameters, lr=1e-3)


optim = torch.optim
SGD, ADAM, ADAMW = of(optim.SGD), of(optim.Adam), of(optim.AdamW)
PICTURES = given((16, 3, 32, 32))
CODES = {
    "categories": tokens(256, 3, most=50),
    "bags": tokens(256, 4),
    "numbers": (256, 13),
}

CASES: dict[str, Case] = {
    "mlp sgd": Case(mlp, given((512, 64)), SGD, cross_entropy),
    "mlp momentum": Case(mlp, given((512, 64)), of(optim.SGD, momentum=0.9)),
    "mlp small batch adam": Case(mlp, given((4, 64)), ADAM),
    "mlp small batch adam foreach": Case(mlp, given((4, 64)), of(optim.Adam, foreach=True)),
    "mlp small batch adamw amsgrad": Case(mlp, given((4, 64)), of(optim.AdamW, amsgrad=True)),
    "mlp small batch sgd foreach": Case(
        mlp, given((4, 64)), of(optim.SGD, momentum=0.9, foreach=True)
    ),
    "mlp small batch adagrad": Case(mlp, given((4, 64)), of(optim.Adagrad)),
    "mlp small batch rmsprop": Case(mlp, given((4, 64)), of(optim.RMSprop, momentum=0.9)),
    "mlp small batch rmsprop centered foreach": Case(
        mlp, given((4, 64)), of(optim.RMSprop, centered=True, foreach=True)
    ),
    "mlp small batch muon": Case(mlp, given((4, 64)), muon),
    "mlp small batch adadelta": Case(mlp, given((4, 64)), of(optim.Adadelta)),
    "mlp small batch nadam": Case(mlp, given((4, 64)), of(optim.NAdam)),
    "mlp small batch fused adam": Case(mlp, given((4, 64)), of(optim.AdamW, fused=True)),
    "mlp small batch vendor adamw": Case(mlp, given((4, 64)), fused_adamw),
    "mlp small batch vendor sgd": Case(mlp, given((4, 64)), fused_sgd),
    "mlp small batch vendor lamb": Case(mlp, given((4, 64)), fused_lamb),
    "mlp bf16": Case(bf16(mlp), given(torch.randn(512, 64).bfloat16()), ADAMW),
    "mlp bf16 vendor adamw": Case(bf16(mlp), given(torch.randn(4, 64).bfloat16()), fused_adamw),
    "mlp autocast": Case(mlp, given((512, 64)), ADAMW, mean_square, torch.bfloat16),
    "mlp accumulating": Case(mlp, given((64, 64)), ADAMW, accumulating=True),
    "mlp accumulating autocast": Case(
        mlp, given((64, 64)), ADAMW, mean_square, torch.bfloat16, accumulating=True
    ),
    "mlp inference": Case(mlp, given((512, 64))),
    "cnn batchnorm": Case(Cnn, PICTURES, of(optim.SGD, momentum=0.9), cross_entropy),
    "cnn batchnorm autocast": Case(Cnn, PICTURES, ADAMW, cross_entropy, torch.bfloat16),
    "cnn channels last": Case(
        lambda: Cnn().to(memory_format=torch.channels_last),
        given(torch.randn(16, 3, 32, 32).contiguous(memory_format=torch.channels_last)),
        SGD,
    ),
    "cnn groupnorm": Case(lambda: Cnn(lambda n: nn.GroupNorm(4, n)), PICTURES, ADAM),
    "cnn inference": Case(Cnn, PICTURES),
    "residual": Case(Residual, PICTURES, of(optim.SGD, momentum=0.9)),
    "residual inference": Case(Residual, PICTURES),
    "unet": Case(UNet, given((4, 3, 32, 32)), ADAMW),
    "unet autocast": Case(UNet, given((4, 3, 32, 32)), ADAMW, mean_square, torch.bfloat16),
    "unet inference": Case(UNet, given((4, 3, 32, 32))),
    "rnn": Case(lambda: Recurrent(nn.RNN), given(tokens(32, 12)), ADAM),
    "lstm": Case(lambda: Recurrent(nn.LSTM), given(tokens(32, 12)), ADAM, cross_entropy),
    "lstm bidirectional": Case(
        lambda: Recurrent(nn.LSTM, bidirectional=True, dropout=0.1), given(tokens(32, 12)), ADAM
    ),
    "gru": Case(lambda: Recurrent(nn.GRU), given(tokens(32, 12)), ADAM),
    "lstm inference": Case(lambda: Recurrent(nn.LSTM), given(tokens(32, 12))),
    "lstm cells": Case(Cells, given((64, 10, 24)), ADAM),
    "transformer encoder": Case(torch_transformer, given((8, 48, 64)), ADAMW),
    "transformer encoder autocast": Case(
        torch_transformer, given((8, 48, 64)), ADAMW, mean_square, torch.bfloat16
    ),
    "transformer encoder inference": Case(torch_transformer, given((8, 48, 64))),
    "transformer": Case(seq2seq, given((8, 24, 32), (8, 20, 32)), ADAMW),
    **{
        f"attention {how}": Case(lambda how=how: Attention(how), given((8, 48, 64)), ADAMW)
        for how in ("module", "weights", "plain", "causal", "dropout", "fused")
    },
    "attention masked": Case(
        lambda: Attention("masked"),
        given((8, 48, 64), mask=torch.ones(8, 1, 48, 48).tril().bool()),
        ADAMW,
    ),
    "attention causal bf16": Case(
        bf16(lambda: Attention("causal")), given(torch.randn(8, 48, 64).bfloat16()), ADAMW
    ),
    "attention causal inference": Case(lambda: Attention("causal"), given((8, 48, 64))),
    "tied": Case(Tied, given(tokens(8, 16)), ADAM, cross_entropy),
    "checkpoint": Case(lambda: Checkpointed(False), given((256, 64)), ADAMW),
    "checkpoint reentrant": Case(lambda: Checkpointed(True), given((256, 64)), ADAMW),
    "checkpoint autocast": Case(
        lambda: Checkpointed(False), given((256, 64)), ADAMW, mean_square, torch.bfloat16
    ),
    "lora": Case(LoRA, given((64, 128)), ADAMW),
    "tables": Case(Tabular, given(**CODES), of(optim.Adagrad)),
    "sound": Case(Convolved1d, given((8, 1, 400)), ADAM),
    "autoencoder": Case(Autoencoder, given((128, 200)), ADAM),
    "graph network": Case(Graphs, given((200, 16), tokens(2, 900, most=200)), ADAM),
    "vendor rms norm": Case(Rotary, given((8, 32, 64)), fused_adamw),
    "Llama": Case(huggingface("Llama"), text(), ADAMW),
    "Llama eager attention": Case(huggingface("Llama", attn_implementation="eager"), text(), ADAMW),
    "Llama bf16 vendor adamw": Case(bf16(huggingface("Llama")), text(), fused_adamw),
    "Llama autocast": Case(huggingface("Llama"), text(), ADAMW, autocast=torch.bfloat16),
    "Llama checkpointed": Case(checkpointed_llama, text(), ADAMW),
    "Llama peft": Case(peft_llama, text(), ADAMW),
    "Llama peft accumulating": Case(peft_llama, text(), ADAMW, accumulating=True),
    "Llama inference": Case(huggingface("Llama"), text()),
    "GPT-2": Case(huggingface("GPT-2"), text(), ADAMW),
    "GPT-2 dropout": Case(
        huggingface("GPT-2", resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1), text(), ADAMW
    ),
    "BERT": Case(huggingface("BERT"), rows("BERT"), of(optim.AdamW, foreach=True)),
    "BERT autocast": Case(huggingface("BERT"), rows("BERT"), ADAMW, autocast=torch.bfloat16),
    "T5": Case(huggingface("T5"), rows("T5"), ADAMW),
    "T5 bf16": Case(bf16(huggingface("T5")), rows("T5"), of(optim.SGD)),
    "ViT": Case(huggingface("ViT"), rows("ViT"), ADAMW),
    "ViT inference": Case(huggingface("ViT"), rows("ViT")),
    "Whisper": Case(huggingface("Whisper"), rows("Whisper"), ADAMW),
    "Mixtral": Case(huggingface("Mixtral"), text(), ADAMW),
    "Mixtral inference": Case(huggingface("Mixtral"), text()),
}


OF_EACH_KIND = frozenset(
    {
        "mlp sgd",
        "mlp small batch adam",
        "mlp small batch adam foreach",
        "mlp small batch rmsprop",
        "mlp small batch adagrad",
        "mlp small batch muon",
        "mlp small batch vendor adamw",
        "mlp bf16",
        "mlp autocast",
        "mlp accumulating",
        "mlp inference",
        "cnn batchnorm",
        "cnn groupnorm",
        "cnn channels last",
        "residual",
        "unet",
        "unet inference",
        "rnn",
        "lstm",
        "gru",
        "lstm inference",
        "transformer encoder autocast",
        "transformer",
        "attention module",
        "attention plain",
        "attention masked",
        "attention fused",
        "tied",
        "checkpoint",
        "checkpoint reentrant",
        "lora",
        "tables",
        "sound",
        "autoencoder",
        "graph network",
        "vendor rms norm",
        "Llama autocast",
        "Llama peft",
        "Llama inference",
        "GPT-2",
        "BERT",
        "T5",
        "ViT",
        "Whisper",
        "Mixtral",
        "Mixtral inference",
    }
)


# Similar models cover lazy mode; ``make estimates`` also runs these in lazy mode.
ONCE = frozenset(
    {
        "mlp small batch rmsprop",
        "mlp small batch adagrad",
        "mlp bf16",
        "cnn groupnorm",
        "unet",
        "lstm",
        "transformer",
        "attention plain",
        "attention fused",
        "tables",
        "Llama autocast",
        "Mixtral",
        "T5",
        "ViT",
    }
)
# In lazy mode, the memory format of such a convolution differs from the kernel's, which fails the
# geometry check of the suite.
NOT_LAZY = frozenset({"cnn channels last"})


def least(output: Any) -> torch.Tensor:
    """Return the default loss: the one in the output, or the sum of the output."""
    if isinstance(output, dict) and output.get("loss") is not None:
        return output["loss"]
    return output.float().sum()


def measured(case: Case, *, lazy: bool) -> dict[str, int]:
    """Return the bytes of the second of two steps on the simulated card."""
    gc.collect()
    before = torch.hpu.memory_allocated()
    torch.manual_seed(0)
    model = case.model().train(case.train).to("hpu")
    args, kwargs = _moved(case.batch())
    optimizer = case.optimizer(model.parameters()) if case.optimizer else None
    figures: dict[str, int] = {}

    def mark() -> None:
        if lazy:
            import habana_frameworks.torch.core as htcore

            htcore.mark_step()

    def forward() -> Any:
        on = case.autocast is not None
        with torch.autocast("hpu", dtype=case.autocast) if on else nullcontext():
            return model(*args, **kwargs)

    def infer() -> None:
        with torch.no_grad():
            output = forward()  # the caller of a model keeps its output
            mark()
            del output

    def train() -> None:
        assert optimizer is not None
        for _ in range(2 if case.accumulating else 1):
            loss = (case.loss or least)(forward())
            if not lazy:
                figures["after_forward"] = torch.hpu.memory_allocated() - before
            loss.backward()
            mark()
        figures["after_backward"] = torch.hpu.memory_allocated() - before
        optimizer.step()
        mark()
        optimizer.zero_grad()

    step = train if optimizer else infer
    step()
    mark()
    gc.collect()
    torch.hpu.reset_peak_memory_stats()
    step()
    figures["peak"] = torch.hpu.max_memory_allocated() - before
    return figures


def estimated(case: Case, *, lazy: bool) -> dict[str, int]:
    """Return the same bytes from a trace."""
    from hpu_magic.estimates.memory import peak
    from hpu_magic.estimates.tracing.optimizers import maker
    from hpu_magic.estimates.tracing.program import Role
    from hpu_magic.estimates.tracing.step import StepOptions, trace_step

    args, kwargs = case.batch()
    model = case.model()
    options = StepOptions(
        train=case.train,
        autocast=case.autocast,
        optimizer=maker(case.optimizer(model.parameters()) if case.optimizer else None),
        loss=case.loss,
        accumulating=case.accumulating,
    )
    program = trace_step(model, args, kwargs, options)
    figures = {"peak": peak(program, recorded=lazy).bytes}
    if case.train and not lazy:
        states = program.of_role(Role.WEIGHTS) + program.of_role(Role.OPTIMIZER)
        around = states + program.of_role(Role.INPUTS) + program.of_role(Role.BUFFERS)
        gradients = program.of_role(Role.GRADIENTS)
        kept = gradients if case.accumulating else 0
        figures["after_forward"] = around + kept + program.of_role(Role.ACTIVATIONS)
        figures["after_backward"] = around + gradients
    return figures


def differences(found: dict[str, int], true: dict[str, int]) -> dict[str, str]:
    """Return both figures where they differ by more than 3 %."""
    return {
        name: f"estimated {found[name]}, measured {true[name]}"
        for name in found
        if abs(found[name] - true[name]) > 0.03 * true[name]
    }


def _moved(batch: Batch) -> Batch:
    args, kwargs = batch

    def one(value: Any) -> Any:
        return value.to("hpu") if isinstance(value, torch.Tensor) else value

    return tuple(map(one, args)), {name: one(value) for name, value in kwargs.items()}


def names(*, lazy: bool) -> list[str]:
    """Return the models to test; the environment can select all."""
    everything = "HPU_MAGIC_TEST_ALL_ESTIMATES" in os.environ
    chosen = CASES if everything else OF_EACH_KIND - ONCE if lazy else OF_EACH_KIND
    return [name for name in CASES if name in chosen and not (lazy and name in NOT_LAZY)]
