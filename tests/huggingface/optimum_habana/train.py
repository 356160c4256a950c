"""A fit with `GaudiTrainer` on the device, or with transformers' `Trainer` on the CPU."""

import tempfile
from functools import partial
from typing import Any

import torch
from reports import MODE, ON_CPU, count_replays, report

if not ON_CPU:
    from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi

    adapt_transformers_to_gaudi()

from tiny_models import LOGGED, llama, sentences


def model(lora: bool):
    """Return a Llama with random weights, optionally with LoRA adapters."""
    torch.manual_seed(0)
    chosen = llama()
    if not lora:
        return chosen
    from peft import LoraConfig, get_peft_model

    layers = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return get_peft_model(chosen, layers)


def trainer(
    folder: str, lora: bool = False, configuration: dict[str, Any] | None = None, **options
):
    """Return the trainer for the device or the CPU."""
    options = {
        "max_steps": 6,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-2,
        **LOGGED,
        **options,
    }
    data = {"train_dataset": sentences(8, 12), "eval_dataset": sentences(4, 12)}
    if ON_CPU:
        from transformers import Trainer, TrainingArguments

        arguments = TrainingArguments(folder, use_cpu=True, **options)
        return Trainer(model=model(lora), args=arguments, **data)
    from optimum.habana import GaudiConfig, GaudiTrainer, GaudiTrainingArguments

    fused = {"use_fused_adam": True, "use_fused_clip_norm": True}
    arguments = GaudiTrainingArguments(
        folder, use_habana=True, use_lazy_mode=MODE == "lazy", **options
    )
    return GaudiTrainer(
        model=model(lora),
        gaudi_config=GaudiConfig(**(fused if configuration is None else configuration)),
        args=arguments,
        **data,
    )


def fit(resumed: bool = False, **options) -> dict[str, Any]:
    """Train, evaluate and predict; a resumed fit begins at its third step."""
    replays = (lambda: 0) if ON_CPU else count_replays()
    with tempfile.TemporaryDirectory() as folder:
        if resumed:
            saved = {"save_strategy": "steps", "save_steps": 3}
            trainer(folder, **saved, **options).train()
        chosen = trainer(folder, **options)
        done = chosen.train(resume_from_checkpoint=f"{folder}/checkpoint-3" if resumed else None)
        evaluation = chosen.evaluate()["eval_loss"]
        predictions = chosen.predict(sentences(4, 12)).predictions
    log = chosen.state.log_history
    return {
        "device": chosen.model.device.type,
        "losses": [row["loss"] for row in log if "loss" in row],
        "norms": [float(row["grad_norm"]) for row in log if row.get("grad_norm") is not None],
        "evaluation": evaluation,
        "predictions": [float(row.mean()) for row in predictions],
        "optimizer": type(getattr(chosen.optimizer, "optimizer", chosen.optimizer)).__name__,
        "memory": "max_memory_allocated (GB)" in done.metrics,
        "replays": replays(),
    }


CASES = {
    "fused": {},
    "unfused": {"configuration": {}},
    "accumulated": {"gradient_accumulation_steps": 2},
    "resumed": {"resumed": True},
    "lora": {"lora": True},
    # Last, because accelerate keeps the reduced precision for later trainers in the process.
    "bf16": {"bf16": True},
}
ONLY_ON_DEVICE = {
    "autocast by configuration": {
        "configuration": {
            "use_torch_autocast": True,
            "use_fused_adam": True,
            "use_fused_clip_norm": True,
        }
    },
    "graphs in training": {"use_hpu_graphs_for_training": True},
    "graphs in inference": {"use_hpu_graphs_for_inference": True},
    "adjusted throughput": {"adjust_throughput": True, "throughput_warmup_steps": 2},
    "data without waiting": {"non_blocking_data_copy": True},
    "forward and backward overlapped": {"pipelining_fwd_bwd": True},
    "compiled": {"torch_compile": True, "torch_compile_backend": "hpu_backend"},
}
if __name__ == "__main__":
    chosen = CASES if ON_CPU else {**CASES, **ONLY_ON_DEVICE}
    report({name: partial(fit, **options) for name, options in chosen.items()})
