"""The vendor's functions accept the calls that Hugging Face's libraries make.

The programs can use `torch`, `htorch` (``habana_frameworks.torch``), `lazy`, and `same`, which
compares a device tensor with a CPU tensor.
"""

import json
import textwrap

import pytest

PRELUDE = """
import json, traceback
import torch
import habana_frameworks.torch as htorch
import habana_frameworks.torch.core as htcore
from habana_frameworks.torch.utils.internal import is_lazy

lazy = is_lazy()

def same(found, expected, tolerance=1e-5):
    assert found.device.type == "hpu", found.device
    torch.testing.assert_close(found.cpu(), expected, atol=tolerance, rtol=tolerance)

def row(*shape):
    torch.manual_seed(0)
    return torch.randn(*shape)
"""

PROGRAMS = {
    "core.hpu_inference_set_env": """
        htcore.hpu_inference_set_env()
        assert torch.hpu.is_inference_mode_enabled()
        htcore.hpu_teardown_inference_env()
        assert not torch.hpu.is_inference_mode_enabled()
    """,
    "hpu.ModuleCacher": """
        if lazy:
            model, x = torch.nn.Linear(3, 2), row(4, 3)
            expected = model(x).detach()
            model.to("hpu")
            htorch.hpu.ModuleCacher()(model=model, allow_unused_input=True, inplace=True)
            for _ in range(3):
                found = model(x.to("hpu"))
                found.sum().backward()
            same(found.detach(), expected)
    """,
    "hpex.kernels.FusedSDPA": """
        from habana_frameworks.torch.hpex.kernels import FusedSDPA
        q, k, v = row(3, 2, 4, 8, 16)
        with htorch.hpu.sdp_kernel(enable_recompute=False):
            found = FusedSDPA.apply(*(x.to("hpu") for x in (q, k, v)), None, 0.0, True, None)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        same(found, expected, 1e-4)
    """,
    "hpex.kernels.RotaryPosEmbedding": """
        from habana_frameworks.torch.hpex.kernels import (
            RotaryPosEmbeddingHelperV2, RotaryPosEmbeddingMode, apply_rotary_pos_emb,
        )
        x, angles = row(2, 3, 5, 8), row(5, 4)
        cos, sin = (f(torch.cat([angles] * 2, -1))[None, None] for f in (torch.cos, torch.sin))
        half = torch.cat([-x[..., 4:], x[..., :4]], -1)
        expected = x * cos + half * sin
        operands = [each.to("hpu") for each in (x, cos, sin)]
        places = torch.arange(5, device="hpu")[None].expand(2, 5)
        same(RotaryPosEmbeddingHelperV2.apply(*operands, places), expected)
        mode = RotaryPosEmbeddingMode.BLOCKWISE
        same(apply_rotary_pos_emb(*operands, None, 0, mode), expected)
    """,
    "hpex.kernels.RotaryPosEmbeddingHelperV3": """
        from habana_frameworks.torch.hpex.kernels import RotaryPosEmbeddingHelperV3
        x, angles = row(5, 2, 3, 8), row(5, 2, 1, 2)
        cache = torch.stack([angles.cos(), angles.sin()], -1)
        pairs = torch.view_as_complex(x[..., :4].reshape(5, 2, 3, 2, 2).contiguous())
        turned = torch.view_as_real(pairs * torch.view_as_complex(cache)).flatten(3)
        found = RotaryPosEmbeddingHelperV3.apply(x.to("hpu"), cache.to("hpu"))
        same(found, torch.cat([turned, x[..., 4:]], -1))
    """,
    "hpex.kernels.CTCLoss": """
        from habana_frameworks.torch.hpex.kernels import CTCLoss
        scores, targets = row(6, 2, 4).log_softmax(-1), torch.tensor([[1, 2], [3, 1]])
        lengths = torch.tensor([6, 6]), torch.tensor([2, 2])
        operands = [each.to("hpu") for each in (scores, targets, *lengths)]
        found = CTCLoss.apply(*operands, 0, "sum", False)
        expected = torch.nn.functional.ctc_loss(scores, targets, *lengths, reduction="sum")
        same(found[0] if isinstance(found, tuple) else found, expected, 1e-4)
    """,
    "hpex.kernels.Fp8Ops.cast_to_fp8_v2": """
        from habana_frameworks.torch.hpex.kernels.Fp8Ops import cast_to_fp8_v2
        x = row(4, 3)
        found, amax = cast_to_fp8_v2(x.to("hpu"), None, False, True, torch.float8_e4m3fn)
        assert found.dtype is torch.float8_e4m3fn
        same(found.float(), x.to(torch.float8_e4m3fn).float(), 0)
        same(amax, x.abs().max())
        for scale in (2.0, torch.tensor(2.0, device="hpu")):
            found, _ = cast_to_fp8_v2(x.to("hpu"), scale, dtype=torch.float8_e4m3fn)
            same(found.float(), (2 * x).to(torch.float8_e4m3fn).float(), 0)
    """,
    "hpex.normalization.FusedRMSNorm": """
        from habana_frameworks.torch.hpex.normalization import FusedRMSNorm
        x, weight = row(2, 3, 8), row(8)
        expected = torch.nn.functional.rms_norm(x, (8,), weight, 1e-6)
        same(FusedRMSNorm.apply(x.to("hpu"), weight.to("hpu"), 1e-6), expected)
    """,
    "ops.mixture_of_experts": """
        x, scores = row(6, 8), row(6, 3).softmax(-1)
        weights, experts = scores.topk(2, -1)
        w1, w3, w2 = ([row(n, m) * (i + 1) for i in range(3)] for n, m in ((4, 8), (4, 8), (8, 4)))
        silu, expected = torch.nn.functional.silu, torch.zeros_like(x)
        for i in range(3):
            y = (silu(x @ w1[i].T) * (x @ w3[i].T)) @ w2[i].T
            expected += y * (weights * (experts == i)).sum(-1, keepdim=True)
        found = torch.ops.hpu.mixture_of_experts(
            hidden_states=x.bfloat16().to("hpu"),
            expert_routing_table=experts.to("hpu"),
            router_weights=weights.bfloat16().to("hpu"),
            w1=[w.bfloat16().to("hpu") for w in w1],
            w2=[w.bfloat16().to("hpu") for w in w3],
            w3=[w.bfloat16().to("hpu") for w in w2],
            permuted_weights=True,
            activation="silu",
            experts_min=0,
            experts_max=2,
        )
        error = (found.float().cpu() - expected).norm() / expected.norm()
        assert error < 0.02, error
    """,
    "ops.rotary_pos_embedding": """
        x, angles = row(2, 5, 3, 8), row(1, 5, 1, 4).repeat_interleave(2, -1)
        cos, sin = angles.cos(), angles.sin()
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        operands = [each.to("hpu") for each in (x, sin, cos)]
        same(torch.ops.hpu.rotary_pos_embedding(*operands, None, 0, 1), x * cos + turned * sin)
        back = torch.ops.hpu.rotary_pos_embedding_backward(*operands, None, 0, 1)
        same(back, x * cos - turned * sin)
    """,
    "ops.softmax_fp8": """
        x = row(2, 2, 4, 4).bfloat16()
        found = torch.ops.hpu.softmax_fp8(x.to("hpu"), -1)
        same(found.float(), x.softmax(-1).float(), 1e-2)
    """,
    "ops.fp8_gemm_v2 and cast_to_fp8_v2": """
        a, b = row(4, 8), row(8, 8)[:6]
        cast = torch.ops.hpu.cast_to_fp8_v2
        one = torch.tensor(1.0, device="hpu")
        fp8 = [cast(x.to("hpu"), one, False, False, torch.float8_e4m3fn)[0] for x in (a, b)]
        found = torch.ops.hpu.fp8_gemm_v2(
            A=fp8[0], trans_A=False, B=fp8[1], trans_B=True, D=None, out_dtype=torch.bfloat16,
            A_scale_inv=one, B_scale_inv=one, bias=None, accumulate=False,
        )
        rounded = [x.to(torch.float8_e4m3fn).float() for x in (a, b)]
        same(found, (rounded[0] @ rounded[1].T).bfloat16(), 2e-2)
    """,
    "ops.fp8_gemm_v2 and cast_to_fp8_just_in_time": """
        assert hasattr(torch.ops.hpu, "cast_to_fp8_just_in_time")
        fp8, block = torch.float8_e4m3fn, 16
        x, weight = row(2, 3, 32).bfloat16(), row(48, 32).to(fp8)
        scale_inv = torch.rand(3, 2) + 0.5
        values, scale = torch.ops.hpu.cast_to_fp8_just_in_time(
            x.to("hpu"), [1, block], out_dtype=fp8, scale_dtype=torch.bfloat16
        )
        found = torch.ops.hpu.fp8_gemm_v2(
            A=values, trans_A=False, B=weight.to("hpu"), trans_B=True, D=None,
            out_dtype=torch.bfloat16, A_scale_inv=scale, B_scale_inv=scale_inv.to("hpu").t(),
            bias=None, accumulate=False,
        )
        scales = scale_inv.repeat_interleave(block, 0).repeat_interleave(block, 1)
        expected = x.float() @ (weight.float() * scales).T
        assert found.shape == (2, 3, 48) and found.dtype is torch.bfloat16
        error = (found.float().cpu() - expected).norm() / expected.norm()
        assert error < 0.05, error
    """,
    "ops.convert_from_uint4": """
        values = torch.arange(16, dtype=torch.int32).reshape(2, 8)
        packed = (values << torch.arange(0, 32, 4, dtype=torch.int32)).sum(-1, keepdim=True)
        found = torch.ops.hpu.convert_from_uint4(
            packed.int().to("hpu"), torch.full((8,), 0.5).to("hpu"), None, torch.float32
        )
        same(found, values * 0.5)
        zero = torch.full((1, 1), 0x55555555, dtype=torch.int32)
        found = torch.ops.hpu.convert_from_uint4(
            packed.int().to("hpu"), torch.full((1, 8), 0.5).to("hpu"), zero.to("hpu"), torch.float32
        )
        same(found, (values - 5) * 0.5)
    """,
}

RUN = """
failed = {}
for name, program in PROGRAMS.items():
    try:
        exec(program, dict(globals()))
    except Exception:
        failed[name] = traceback.format_exc(limit=-2)
print(json.dumps(failed))
"""


@pytest.mark.parametrize("lazy", ["0", "1"], ids=["eager", "lazy"])
def test_calls_return_the_results_that_the_libraries_expect(forked_script, lazy):
    programs = {name: textwrap.dedent(text) for name, text in PROGRAMS.items()}
    code = f"{PRELUDE}\nPROGRAMS = {programs!r}\n{RUN}"
    printed = forked_script(code, simulated=True, PT_HPU_LAZY_MODE=lazy)
    failed = json.loads(printed.splitlines()[-1])
    assert not failed, "\n".join(f"{name}: {text}" for name, text in failed.items())
