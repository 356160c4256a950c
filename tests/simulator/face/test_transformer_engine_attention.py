"""Test FP8 attention: supported options, error and scales.

E5M2 has two mantissa bits. The root mean square error of an operand is below 8 %, and the error
of results and gradients with three or four operands is below 15 %.
"""

import habana_frameworks.torch.hpex.experimental.transformer_engine as te
import pytest
import torch
from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe
from habana_frameworks.torch.hpex.kernels import FusedSDPA
from torch.utils.checkpoint import checkpoint

IN_E5M2 = recipe.DelayedScaling(fp8_format=recipe.Format.E5M2)
Q, KV = (2, 4, 24, 16), (2, 2, 24, 16)


def random_operands(seed=0, of_keys=KV, dtype=torch.bfloat16):
    made = torch.Generator().manual_seed(seed)
    return [
        torch.randn(shape, generator=made).to(dtype).to("hpu").requires_grad_()
        for shape in (Q, of_keys, of_keys)
    ]


def exact(tensors, grad=None, mask=None, is_causal=True):
    leaves = [each.detach().cpu().double().requires_grad_() for each in tensors]
    out = torch.nn.functional.scaled_dot_product_attention(
        *leaves, attn_mask=mask, is_causal=is_causal, enable_gqa=True
    )
    if grad is None:
        return [out]
    return [out, *torch.autograd.grad(out, leaves, grad.cpu().double())]


def error(found, expected):
    return ((found.detach().cpu().double() - expected).norm() / expected.norm()).item()


def step(module, tensors, scaling=IN_E5M2, seed=9):
    with te.fp8_autocast(fp8_recipe=scaling):
        out = module(*tensors, is_causal=True)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed)).to("hpu")
    return [out, *torch.autograd.grad(out, tensors, grad.to(out.dtype))], grad


@pytest.mark.parametrize("of_keys", [KV, Q], ids=["grouped", "each"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention_trains_in_fp8(dtype, of_keys):
    module, tensors = te.FusedAttention(), random_operands(of_keys=of_keys, dtype=dtype)
    for _ in range(2):
        found, grad = step(module, tensors)
    assert [each.dtype for each in found] == [torch.bfloat16, *[dtype] * 3]
    assert [each.shape for each in found[1:]] == [each.shape for each in tensors]
    errors = list(map(error, found, exact(tensors, grad)))
    assert all(0.01 < each < 0.15 for each in errors), errors
    of_forward, of_backward = (
        module.fp8_meta[name].scale.cpu() for name in ("scaling_fwd", "scaling_bwd")
    )
    largest = torch.stack([each.detach().abs().max().cpu().float() for each in tensors])
    torch.testing.assert_close(of_forward[:3], 57344 / largest)
    assert of_forward[3].item() == pytest.approx(57344, rel=1e-5)  # the first query has one key
    assert of_backward[0].item() == pytest.approx(57344 / grad.bfloat16().abs().max().item())
    q, k, v = (each.detach().cpu().double() for each in tensors)
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    causal = torch.ones(24, 24, dtype=torch.bool).tril()
    weights = (q @ k.mT / 4).masked_fill(~causal, -torch.inf).softmax(-1)
    of_weights = grad.cpu().double() @ v.mT
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True))
    assert of_backward[1].item() == pytest.approx(57344 / of_scores.abs().max().item(), rel=0.2)


def test_operands_are_rounded_before_products():
    module = te.FusedAttention(scale=1.0)
    q, k, v = (torch.full((1, 1, 3, 2), value, device="hpu") for value in (0.0, 1.0, 1.1))
    with te.fp8_autocast(fp8_recipe=IN_E5M2):
        out = module(q, k, v, is_causal=True)
    # 1.1 is rounded to 1.0, and probabilities to 1, 1/2, 1/4 or (instead of 1/3) 3/8.
    assert out.flatten().tolist() == [1.0, 1.0, 1.0, 1.0, 0.9375, 0.9375]


def test_recomputation_changes_no_result():
    results = [
        step(te.FusedAttention(enable_recompute=recompute), random_operands())[0]
        for recompute in (False, True)
    ]
    for kept, again in zip(*results, strict=True):
        assert torch.equal(kept.detach().cpu(), again.detach().cpu())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_neither_gradients_nor_scales(reentrant):
    results, scales = [], []
    for checkpointed in (False, True):
        module, tensors = te.FusedAttention(), random_operands()

        def attend(*operands, module=module):
            return module(*operands, None, True)

        for seed in (1, 2):
            with te.fp8_autocast(fp8_recipe=IN_E5M2):
                if checkpointed:
                    out = checkpoint(attend, *tensors, use_reentrant=reentrant)
                else:
                    out = attend(*tensors)
            (out.float().square().sum() * seed).backward()
        results.append([each.grad.cpu() for each in tensors])
        scales.append(
            [module.fp8_meta[name].scale.tolist() for name in ("scaling_fwd", "scaling_bwd")]
        )
    assert all(map(torch.equal, *results))
    assert scales[0] == scales[1]


@pytest.mark.parametrize("recompute", [False, True])
def test_dropout_applies_only_in_training(recompute):
    module = te.FusedAttention(attention_dropout=0.5, enable_recompute=recompute)
    q, k, _ = random_operands(of_keys=Q)
    v = torch.ones(Q, device="hpu").bfloat16().requires_grad_()
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(step(module, (q, k, v))[0])
        module.fp8_meta.clear()
    for first, second in zip(*results, strict=True):
        assert torch.equal(first.detach().cpu(), second.detach().cpu())
    rows = results[0][0].detach().float().cpu()[..., 0]
    assert rows.std() > 0.1
    assert rows.mean() == pytest.approx(1.0, abs=0.2)
    module.eval()
    rows = step(module, (q, k, v))[0][0].detach().float().cpu()
    torch.testing.assert_close(rows, torch.ones_like(rows), rtol=0.1, atol=0)


@pytest.mark.parametrize("where", ["outside", "disabled", "two formats", "not causal", "a mask"])
def test_unsupported_attention_computes_in_the_dtype_of_the_inputs(where):
    module, tensors = te.FusedAttention(), random_operands()
    scaling = recipe.DelayedScaling() if where == "two formats" else IN_E5M2
    mask = torch.zeros(24, 24, device="hpu").bfloat16() if where == "a mask" else None
    options = mask, where not in ("not causal", "a mask")
    expected = FusedSDPA.apply(*tensors, mask, 0.0, options[1], None, "None", False)
    if where == "outside":
        found = module(*tensors, *options)
    else:
        with te.fp8_autocast(where != "disabled", scaling):
            found = module(*tensors, *options)
    assert module.fp8_meta == {}
    assert torch.equal(found.detach().cpu(), expected.detach().cpu())
    found.sum().backward()
    assert all(each.grad is not None for each in tensors)


def test_inference_supports_masks_in_fp8():
    module, tensors = te.FusedAttention(), random_operands()
    step(module, tensors)
    module.eval()
    mask = torch.rand(2, 1, 24, 24) > 0.3
    mask[..., 0] = True
    with te.fp8_autocast(fp8_recipe=IN_E5M2), torch.no_grad():
        found = module(*tensors, mask.to("hpu"))
    assert 0.01 < error(found, *exact(tensors, mask=mask, is_causal=False)) < 0.15
