"""The vendor's names that Hugging Face's libraries use, each with a call as theirs.

A program ends without an error where the call gives what the libraries take from it. It finds
`torch`, `htorch` (``habana_frameworks.torch``), `lazy`, and `same`, which compares a tensor of the
card with one of the CPU.
"""

from __future__ import annotations

PRELUDE = """
import importlib.util, traceback
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
    # core
    "core.mark_step": """
        x = torch.ones(2, device="hpu") + 1
        htcore.mark_step()
        same(x, torch.full((2,), 2.0))
    """,
    "core.hpu_set_env": """
        htcore.hpu_set_env()
        assert torch.hpu.is_inference_mode_enabled()
        htcore.hpu_reset_env()
    """,
    "core.hpu_inference_set_env": """
        htcore.hpu_inference_set_env()
        assert torch.hpu.is_inference_mode_enabled()
        htcore.hpu_teardown_inference_env()
        assert not torch.hpu.is_inference_mode_enabled()
    """,
    "core.hpu_initialize": """
        model = torch.nn.Linear(2, 2).eval().to("hpu")
        before = model(torch.ones(1, 2, device="hpu")).cpu()
        htcore.hpu_initialize(model, mark_only_scales_as_const=True)
        same(model(torch.ones(1, 2, device="hpu")), before.detach())
    """,
    "core.hpu_inference_initialize": """
        model = torch.nn.Linear(2, 2).eval().to("hpu")
        htcore.hpu_inference_initialize(model, mark_only_scales_as_const=True)
        assert model(torch.ones(1, 2, device="hpu")).shape == (1, 2)
    """,
    "core.step_closure": """
        said = []
        htcore.step_closure.add_step_closure(said.append, ("closed",))
        htcore.mark_step()
        assert said == (["closed"] if lazy else []), said
    """,
    "core.quantizer": """
        from habana_frameworks.torch.core.quantizer import (
            habana_quant_config_symmetric, habana_quantizer,
        )
        if importlib.util.find_spec("torchao"):  # which PyTorch's part of it has moved to
            config = habana_quant_config_symmetric(torch.float8_e4m3fn)
            assert habana_quantizer().set_global(config).get_supported_operators() is not None
    """,
    "core.hpu.set_device": """
        htcore.hpu.set_device(0)
        assert torch.hpu.current_device() == 0
    """,
    # hpu
    "hpu.wrap_in_hpu_graph": """
        from habana_frameworks.torch.hpu import wrap_in_hpu_graph
        if lazy:
            model = torch.nn.Linear(3, 2)
            x = row(4, 3)
            expected = model(x).detach()
            wrapped = wrap_in_hpu_graph(model.eval().to("hpu"), disable_tensor_cache=True)
            with torch.no_grad():
                for _ in range(3):
                    same(wrapped(x.to("hpu")), expected)
    """,
    "hpu.HPUGraph, stream and Stream": """
        if lazy:
            graph, x = htorch.hpu.HPUGraph(), torch.ones(3, device="hpu")
            with htorch.hpu.stream(htorch.hpu.Stream()):
                graph.capture_begin()
                y = x * 2
                graph.capture_end()
            x.copy_(torch.arange(3.0))
            graph.replay()
            htcore.hpu.default_stream().synchronize()
            same(y, torch.arange(3.0) * 2)
        else:
            with htorch.hpu.stream(htorch.hpu.Stream()):
                y = torch.ones(3, device="hpu") * 2
            htcore.hpu.default_stream().synchronize()
            same(y, torch.full((3,), 2.0))
    """,
    "hpu.synchronize": "assert torch.hpu.synchronize() is None",
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
    "hpu.random": """
        from habana_frameworks.torch.hpu import random as hpu_random
        hpu_random.manual_seed_all(7)
        state = hpu_random.get_rng_state_all()
        first = torch.rand(3, device="hpu").cpu()
        hpu_random.set_rng_state_all(state)
        same(torch.rand(3, device="hpu"), first, 0)
        one = hpu_random.get_rng_state()
        again = torch.rand(3, device="hpu").cpu()
        hpu_random.set_rng_state(one)
        same(torch.rand(3, device="hpu"), again, 0)
        assert not torch.equal(first, again) and len(state) == 1
        assert torch.equal(torch.hpu.get_rng_state_all()[0], torch.hpu.get_rng_state())
        torch.hpu.set_rng_state_all(state)
        same(torch.rand(3, device="hpu"), first, 0)
    """,
    "hpu.memory": """
        held = torch.zeros(1 << 20, device="hpu")
        torch.hpu.synchronize()
        assert torch.hpu.memory_allocated() >= 4 << 20
        assert torch.hpu.max_memory_allocated() >= torch.hpu.memory_allocated()
        torch.hpu.reset_peak_memory_stats()
        from habana_frameworks.torch.hpu import memory_stats
        stats = memory_stats()
        assert stats["InUse"] == torch.hpu.memory_allocated(), stats
        assert {"MaxInUse", "Limit"} <= stats.keys()
    """,
    "hpu.sdp_kernel": """
        with htorch.hpu.sdp_kernel(enable_recompute=True):
            assert htorch.hpu.recompute_sdp_enabled()
    """,
    "hpu.get_device_name": 'assert htorch.hpu.get_device_name() == "GAUDI2"',
    "hpu.autocast": """
        assert not htorch.hpu.is_autocast_hpu_enabled()
        with torch.autocast("hpu", dtype=torch.bfloat16):
            assert htorch.hpu.is_autocast_hpu_enabled()
            assert htorch.hpu.get_autocast_hpu_dtype() is torch.bfloat16
    """,
    "hpu.dynamic_shape": """
        before = htorch.hpu.get_dynamic_shape_status()
        htorch.hpu.enable_dynamic_shape()
        assert htorch.hpu.get_dynamic_shape_status()
        htorch.hpu.disable_dynamic_shape()
        assert not htorch.hpu.get_dynamic_shape_status()
        if before:
            htorch.hpu.enable_dynamic_shape()
    """,
    "hpu.enable_const_section_serialization": """
        import tempfile
        with tempfile.TemporaryDirectory() as folder:
            htorch.hpu.enable_const_section_serialization(folder, False, False)
            htorch.hpu.disable_const_section_serialization()
    """,
    # hpex
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
        given = [one.to("hpu") for one in (x, cos, sin)]
        places = torch.arange(5, device="hpu")[None].expand(2, 5)
        same(RotaryPosEmbeddingHelperV2.apply(*given, places), expected)
        mode = RotaryPosEmbeddingMode.BLOCKWISE
        same(apply_rotary_pos_emb(*given, None, 0, mode), expected)
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
        given = [one.to("hpu") for one in (scores, targets, *lengths)]
        found = CTCLoss.apply(*given, 0, "sum", False)
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
    "hpex.normalization.FusedClipNorm": """
        from habana_frameworks.torch.hpex.normalization import FusedClipNorm
        model = torch.nn.Linear(3, 2).to("hpu")
        clip = FusedClipNorm(model.parameters(), 0.5)
        (model(row(4, 3).to("hpu")) * 9).sum().backward()
        before = torch.cat([p.grad.cpu().flatten() for p in model.parameters()]).norm()
        norm = clip.clip_norm(model.parameters())
        after = torch.cat([p.grad.cpu().flatten() for p in model.parameters()]).norm()
        same(norm.squeeze(), before, 1e-4)
        assert abs(after.item() - 0.5) < 1e-4, after
    """,
    "hpex.optimizers.FusedAdamW": """
        import copy
        from habana_frameworks.torch.hpex.optimizers import FusedAdamW
        plain = torch.nn.Linear(3, 2)
        model, x = copy.deepcopy(plain).to("hpu"), row(4, 3)
        settings = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8}
        groups = [{"params": list(model.parameters()), "weight_decay": 0.0}]
        pairs = (FusedAdamW(groups, **settings), model, "hpu"), (
            torch.optim.AdamW(plain.parameters(), weight_decay=0.0, **settings), plain, "cpu"
        )
        for optimizer, module, device in pairs:
            for _ in range(2):
                optimizer.zero_grad(set_to_none=False)
                module(x.to(device)).square().sum().backward()
                optimizer.step()
        same(model.weight.detach(), plain.weight.detach(), 1e-4)
    """,
    "hpex.experimental.transformer_engine": """
        import habana_frameworks.torch.hpex.experimental.transformer_engine as te
        from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe
        from habana_frameworks.torch.hpex.experimental.transformer_engine.distributed import (
            activation_checkpointing,
        )
        layer = te.Linear(16, 16, bias=True).to("hpu")
        scaling = recipe.DelayedScaling(margin=0, fp8_format=recipe.Format.E5M2)
        forward = activation_checkpointing()(lambda x: layer(x))
        with te.fp8_autocast(enabled=True, fp8_recipe=scaling):
            assert forward(row(16, 16).to("hpu")).shape == (16, 16)
    """,
    # utils, dynamo, distributed, profiler
    "utils.experimental": """
        import habana_frameworks.torch.utils.experimental as htexp
        kind = htexp._get_device_type()
        assert kind == htexp.synDeviceType.synDeviceGaudi2
        assert kind not in (htexp.synDeviceType.synDeviceGaudi, htexp.synDeviceType.synDeviceGaudi3)
    """,
    "distributed.hccl.initialize_distributed_hpu": """
        from habana_frameworks.torch.distributed.hccl import initialize_distributed_hpu
        assert initialize_distributed_hpu() == (1, -1, -1)  # no launcher has said anything
    """,
    "profiler.ProfilerActivity.HPU": """
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.HPU]
        with torch.profiler.profile(activities=activities) as profiler:
            torch.ones(3, device="hpu").add(1).cpu()
        assert profiler.key_averages()
    """,
    # torch.ops.hpu
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
        given = [one.to("hpu") for one in (x, sin, cos)]
        same(torch.ops.hpu.rotary_pos_embedding(*given, None, 0, 1), x * cos + turned * sin)
        back = torch.ops.hpu.rotary_pos_embedding_backward(*given, None, 0, 1)
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
        values, of_values = torch.ops.hpu.cast_to_fp8_just_in_time(
            x.to("hpu"), [1, block], out_dtype=fp8, scale_dtype=torch.bfloat16
        )
        found = torch.ops.hpu.fp8_gemm_v2(
            A=values, trans_A=False, B=weight.to("hpu"), trans_B=True, D=None,
            out_dtype=torch.bfloat16, A_scale_inv=of_values, B_scale_inv=scale_inv.to("hpu").t(),
            bias=None, accumulate=False,
        )
        spread = scale_inv.repeat_interleave(block, 0).repeat_interleave(block, 1)
        expected = x.float() @ (weight.float() * spread).T
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
    # last: it holds for the rest of the process
    "dynamo.compile_backend.experimental.enable_compiled_autograd": """
        from habana_frameworks.torch.dynamo.compile_backend.experimental import (
            enable_compiled_autograd,
        )
        enable_compiled_autograd()
    """,
}
