"""Run features in one process: ``python row.py FOLDER FEATURES`` prints a JSON line per feature.

FOLDER contains a model of ``models.py``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch

sys.path[0] = str(Path(__file__).parents[1])


def adapter(folder: Path) -> tuple[Path, torch.nn.Module]:
    """Write a LoRA adapter of the query and value layers, and return the model that includes it."""
    from safetensors.torch import save_file

    from serving_table import models

    model = models.make("llama")
    made = torch.Generator().manual_seed(3)
    weights = {}
    for name, module in model.named_modules():
        if name.endswith(("q_proj", "v_proj")):
            down = torch.randn(8, module.in_features, generator=made).bfloat16()
            up = (torch.randn(module.out_features, 8, generator=made) / 8).bfloat16()
            weights[f"base_model.model.{name}.lora_A.weight"] = down
            weights[f"base_model.model.{name}.lora_B.weight"] = up
            module.weight.data += up.float() @ down.float()
    stored = folder / "adapter"
    stored.mkdir(exist_ok=True)
    save_file(weights, stored / "adapter_model.safetensors")
    settings = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "bias": "none"}
    settings |= {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    (stored / "adapter_config.json").write_text(json.dumps(settings))
    return stored, model


def generated(llm: Any, rows: list[dict[str, Any]], **options: Any) -> list[list[int]]:
    """Return the greedy tokens for each prompt."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=len(rows[0]["tokens"]), ignore_eos=True)
    prompts = [{"prompt_token_ids": row["prompt"]} for row in rows]
    outputs = llm.generate(prompts, sampling, use_tqdm=False, **options)
    return [list(output.outputs[0].token_ids) for output in outputs]


def compared(tokens: list[list[int]], expected: list[list[int]]) -> tuple[bool, str]:
    """Return whether all tokens are equal, and how many tokens precede the first difference."""
    same = total = 0
    for found, wanted in zip(tokens, expected, strict=True):
        pairs = zip(found, wanted, strict=True)
        same += next((i for i, (a, b) in enumerate(pairs) if a != b), len(wanted))
        total += len(wanted)
    return same == total, f"{same} of {total}"


def run(feature: dict[str, Any], folder: Path) -> tuple[bool, str]:
    """Run the feature; return whether it works, and a sentence for the table."""
    from vllm import LLM

    check = feature["check"]
    rows = json.loads((folder / "expected.json").read_text())
    options: dict[str, Any] = {}
    if check == "lora":
        from vllm.lora.request import LoRARequest

        from serving_table import models

        stored, merged = adapter(folder)
        options["lora_request"] = LoRARequest("adapter", 1, str(stored))
        rows = models.expected(merged, models.KINDS["llama"].length)
    embeddings = _embeddings(rows) if check == "embeddings" else None
    llm = LLM(model=str(folder), **feature["options"])
    if check == "guided":
        return _guided(llm)
    if embeddings is not None:
        return _embedded(llm, rows, embeddings)
    tokens = generated(llm, rows, **options)
    good, sentence = compared(tokens, [row["tokens"] for row in rows])
    if rule := feature["rule"]:
        _, other = compared(tokens, [row["by_definition"] for row in rows])
        sentence += f" with the plugin's {rule}, {other} with the model's"
    if check == "prefix":
        again = llm.generate([{"prompt_token_ids": rows[0]["prompt"]}], use_tqdm=False)[
            0
        ].num_cached_tokens
        return good and bool(again), f"{sentence}; {again} tokens of a repeated prompt were cached"
    return good, sentence


def _guided(llm: Any) -> tuple[bool, str]:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    pattern = "(yes|no)[0-9]{3}"
    sampling = SamplingParams(
        temperature=0, max_tokens=8, structured_outputs=StructuredOutputsParams(regex=pattern)
    )
    texts = [each.outputs[0].text for each in llm.generate(["a", "question"], sampling)]
    good = all(re.fullmatch(pattern, text) for text in texts)
    return good, "the answers match the regular expression" if good else f"wrong answers: {texts}"


def _embeddings(rows: list[dict[str, Any]]) -> torch.Tensor:
    from serving_table import models

    model = models.make("llama").model
    with torch.no_grad():
        states = [model(torch.tensor([row["prompt"]])).last_hidden_state[0, -1] for row in rows]
    return torch.nn.functional.normalize(torch.stack(states), dim=-1)


def _embedded(llm: Any, rows: list[dict[str, Any]], expected: torch.Tensor) -> tuple[bool, str]:
    outputs = llm.embed([{"prompt_token_ids": row["prompt"]} for row in rows], use_tqdm=False)
    found = torch.tensor([each.outputs.embedding for each in outputs])
    cosine = torch.nn.functional.cosine_similarity(found, expected).min().item()
    return cosine > 0.999, f"cosine similarity of at least {int(cosine * 10_000) / 10_000}"


def main(folder: Path, features: list[dict[str, Any]]) -> None:
    """Run features one after the other, and print the result of each."""
    from vllm.distributed import cleanup_dist_env_and_memory

    for feature in features:
        print("RESULT", json.dumps(run(feature, folder)), flush=True)
        torch._dynamo.reset()
        cleanup_dist_env_and_memory()


if __name__ == "__main__":
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
