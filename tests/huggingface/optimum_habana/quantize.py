"""A tiny Llama in FP8, with configurations for Intel Neural Compressor."""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from optimum.habana.transformers.modeling_utils import adapt_transformers_to_gaudi
from reports import MODE, report

adapt_transformers_to_gaudi()
_PROMPT = torch.tensor([[1, 6, 7, 8, 9]])


def model():
    """Return the model in bfloat16."""
    from tiny_models import llama

    torch.manual_seed(0)
    return llama(torch_dtype=torch.bfloat16).eval().to(torch.bfloat16).to("hpu")


def tokens(chosen) -> list[list[int]]:
    """Generate eight tokens with a reused cache."""
    from transformers import GenerationConfig

    configuration = GenerationConfig(
        bos_token_id=1, eos_token_id=2, pad_token_id=0, max_new_tokens=8, min_new_tokens=8
    )
    configuration.static_shapes = configuration.reuse_cache = True
    configuration.ignore_eos = False
    generated = chosen.generate(
        _PROMPT.to("hpu"),
        generation_config=configuration,
        lazy_mode=MODE == "lazy",
        hpu_graphs=False,
        ignore_eos=False,
    )
    return generated.cpu().tolist()


@torch.no_grad()
def logits(chosen) -> torch.Tensor:
    """Return the logits of the prompt."""
    return chosen(_PROMPT.to("hpu")).logits.float().cpu()


def quantized(scale_method: str) -> dict[str, Any]:
    """Measure, quantize and generate; return the tokens and the error of the logits."""
    from neural_compressor.torch import quantization

    read = quantization.FP8Config.from_json_file

    exact = model()
    expected, reference = tokens(exact), logits(exact)
    no_limits = {"types": [], "names": []}
    with tempfile.TemporaryDirectory() as folder:
        common = {
            "observer": "maxabs",
            "allowlist": no_limits,
            "blocklist": no_limits,
            "dump_stats_path": f"{folder}/measured",
        }
        steps = {
            "measure": {"method": "HOOKS", "mode": "MEASURE", "measure_exclude": "OUTPUT"},
            "quantize": {"method": "HOOKS", "mode": "QUANTIZE", "scale_method": scale_method},
        }
        for step, options in steps.items():
            Path(folder, f"{step}.json").write_text(json.dumps({**common, **options}))
        measured = quantization.prepare(model(), read(f"{folder}/measure.json"))
        tokens(measured)
        quantization.finalize_calibration(measured)
        chosen = quantization.convert(model(), read(f"{folder}/quantize.json"))
    layer = chosen.model.layers[0].self_attn.q_proj
    return {
        "expected": expected,
        "tokens": tokens(chosen),
        "error": (logits(chosen) - reference).abs().max().item(),
        "largest": reference.abs().max().item(),
        "weight": str(layer.weight.dtype),
    }


if __name__ == "__main__":
    report({name: partial(quantized, name) for name in ("maxabs_hw", "maxabs_pow2")})
