"""transformers' Trainer on the device against the CPU, and generate in HPU graphs against it.

The library settles once which device a process trains on, so each Trainer has its own process.
All is timed in the processor time of one thread, which what else runs on the machine hardly
lengthens.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from time import process_time

from bench.harness import Figure, fresh_process, in_turn, quiet_ratio, seconds

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


class Trainer:
    """A process that trains a small Llama by transformers' Trainer, `STEPS` steps a call.

    Attributes
    ----------
    spent : float
        Seconds of processor time that all calls took.
    """

    def __init__(self, device: str) -> None:
        self.spent = 0.0
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"from bench.huggingface import serve; serve({device!r})"],
            env={**os.environ, "HPU_MAGIC_SIMULATOR": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._wait()

    def __call__(self) -> None:
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError("The process with transformers' Trainer has ended.")
        self.spent += float(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(device: str) -> None:
    """Train for every line on standard input; standard output says how long that took."""
    answers, sys.stdout = sys.stdout, sys.stderr  # the library prints what it trains
    train = training(device)
    train()
    gc.freeze()  # each fit starts with a collection, which would take as long as several steps
    print(0.0, file=answers, flush=True)
    for _ in sys.stdin:
        print(seconds(train, process_time), file=answers, flush=True)


def training(device: str):
    """Return a function that trains for some steps, including setup and end of the Trainer."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # a second thread would spin while it waits for the first
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
    """Generate alternately on the CPU and with HPU Graphs; print the seconds as JSON."""
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
        raise RuntimeError("Device and CPU generated different tokens.")
    pairs = in_turn(lambda: generate(cpu), lambda: generate(hpu), ROUNDS, clock=process_time)
    print(json.dumps(pairs))


def figures() -> Iterator[Figure]:
    if find_spec("transformers") is None:
        print("transformers is not installed: its figures are omitted")
        return
    cpu, hpu = Trainer("cpu"), Trainer("hpu")
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
    name = f"generate of {NEW_TOKENS} tokens, Llama: HPU graphs / cpu"
    yield Figure(name, value, "ratio", GENERATE_TARGET)
