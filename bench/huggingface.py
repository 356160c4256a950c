"""transformers' Trainer on the device, and generate() with HPU Graphs, relative to the CPU.

transformers selects the device only once per process, so each Trainer runs in its own process. The
figures use the CPU time of a single thread, which is hardly affected by other processes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from time import process_time

from bench.harness import Companion, Figure, fresh_process, in_turn, quiet_ratio, serve

TRAINER_TARGET = 1.0
GENERATE_TARGET = 0.7
STEPS = 20
NEW_TOKENS = 64
ROUNDS = 16
SIZES = {
    "vocab_size": 1024,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def serve_training(device: str) -> None:
    """Serve requests, each of which runs `Trainer.train`."""
    serve(training(device), process_time)


def training(device: str):
    """Return a function that trains for `STEPS` steps, including setup and teardown."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # a second thread would busy-wait for the first
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
    ids = torch.randint(1, SIZES["vocab_size"], (STEPS * 8, 64))
    rows = [{"input_ids": row, "labels": row} for row in ids]
    folder = tempfile.mkdtemp(prefix="hpu_magic_bench_")
    arguments = transformers.TrainingArguments(
        folder,
        max_steps=STEPS,
        per_device_train_batch_size=8,
        use_cpu=device == "cpu",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    if trainer.args.device.type != device:
        raise RuntimeError(f"The Trainer uses {trainer.args.device} instead of {device}.")
    os.rmdir(folder)
    return trainer.train


def generation() -> None:
    """Generate text alternately on the CPU and with HPU Graphs, and print the times as JSON."""
    import torch
    import transformers

    import hpu_magic

    torch.set_num_threads(1)
    configuration = transformers.LlamaConfig(**SIZES)
    torch.manual_seed(0)
    cpu = transformers.LlamaForCausalLM(configuration).eval()
    hpu = transformers.LlamaForCausalLM(configuration).eval()
    hpu.load_state_dict(cpu.state_dict())
    hpu_magic.wrap(hpu.to("hpu"), train=False)
    prompt = torch.randint(1, SIZES["vocab_size"], (1, 32))

    def generate(model) -> torch.Tensor:
        text = prompt.to(model.device)
        return model.generate(text, max_new_tokens=NEW_TOKENS, do_sample=False).cpu()

    if not torch.equal(generate(cpu), generate(hpu)):
        raise RuntimeError("The device and the CPU generated different tokens.")
    pairs = in_turn(lambda: generate(cpu), lambda: generate(hpu), ROUNDS, clock=process_time)
    print(json.dumps(pairs))


def figures() -> Iterator[Figure]:
    if find_spec("transformers") is None:
        print("transformers is not installed; skipping its figures")
        return
    code = "from bench.huggingface import serve_training; serve_training({!r})"
    cpu, hpu = (Companion(code.format(device)) for device in ("cpu", "hpu"))
    pairs = in_turn(cpu, hpu, ROUNDS, clock=lambda: cpu.spent + hpu.spent)
    value = quiet_ratio(pairs)
    for each in (cpu, hpu):
        each.close()
    yield Figure("transformers' Trainer, Llama: hpu / cpu", value, "ratio", TRAINER_TARGET)
    lines = fresh_process(
        "from bench.huggingface import generation; generation()",
        HPU_MAGIC_SIMULATOR="1",
        PT_HPU_LAZY_MODE="1",
    )
    value = quiet_ratio(json.loads(lines.splitlines()[-1]))
    name = f"generate of {NEW_TOKENS} tokens, Llama: HPU Graphs / cpu"
    yield Figure(name, value, "ratio", GENERATE_TARGET)
