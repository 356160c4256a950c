"""FP8 training in compiled and captured code equals eager mode."""

import habana_frameworks.torch.hpex.experimental.transformer_engine as te
import pytest
import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.hpex.experimental.transformer_engine import recipe
from habana_frameworks.torch.utils.internal import is_lazy


def layer():
    torch.manual_seed(0)
    return te.Linear(6, 5, params_dtype=torch.float32)


def inputs(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, 6, generator=generator) * 2.0 ** (3 - step)


@pytest.mark.skipif(is_lazy(), reason="lazy mode has no compile backend")
def test_compiled_model_equals_eager_mode(monkeypatch):
    monkeypatch.setenv("PT_TE_FORCE_SR_BWD", "0")
    torch._dynamo.reset()
    plain, inner = (torch.nn.Sequential(layer(), torch.nn.ReLU()) for _ in range(2))
    compiled = torch.compile(inner, backend="hpu_backend")
    for step in range(3):
        for model in (plain, compiled):
            with te.fp8_autocast():
                out = model(inputs(step).to("hpu"))
            out.float().square().sum().backward()
        found, expected = inner[0], plain[0]
        assert torch.equal(found.weight.grad.cpu(), expected.weight.grad.cpu())
        for name in ("scaling_fwd", "scaling_bwd"):
            scales = found.fp8_meta[name].scale.cpu(), expected.fp8_meta[name].scale.cpu()
            assert torch.equal(*scales)


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
def test_replayed_step_updates_its_scales(monkeypatch):
    monkeypatch.setenv("PT_TE_FORCE_SR_BWD", "0")

    def step(module, data):
        with te.fp8_autocast(fp8_recipe=recipe.DelayedScaling(amax_history_len=2)):
            out = module(data)
        out.square().sum().backward()
        with torch.no_grad():
            module.weight.sub_(module.weight.grad, alpha=1e-4)
            module.weight.grad.zero_()
        return out.detach()

    captured, plain = layer(), layer()
    static = inputs(0).to("hpu")
    for module in (captured, plain):
        step(module, static)  # creates gradients and scales
    graph = hpu.HPUGraph()
    with hpu.stream(hpu.Stream()):
        graph.capture_begin()
        result = step(captured, static)
        graph.capture_end()
    step(plain, static)  # a capture also runs the operations
    for number in range(3):
        fresh = inputs(number)
        static.copy_(fresh)
        graph.replay()
        assert torch.equal(result.cpu(), step(plain, fresh.to("hpu")).cpu())
    for name in ("scaling_fwd", "scaling_bwd"):
        for mine, its in zip(
            vars(captured.fp8_meta[name]).values(), vars(plain.fp8_meta[name]).values(), strict=True
        ):
            assert torch.equal(mine.cpu(), its.cpu())


@pytest.mark.skipif(not is_lazy(), reason="graphs are for lazy mode")
@pytest.mark.parametrize("wrap", ["make_graphed_callables", "ModuleCacher"])
def test_scales_are_updated_in_the_vendors_wrappers(wrap):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer()

        @te.fp8_autocast()
        def forward(self, data):
            return self.layer(data)

    model, data = Model(), inputs(0).to("hpu")
    if wrap == "ModuleCacher":
        hpu.ModuleCacher()(model, inplace=True)
        run = model
    else:
        run = hpu.make_graphed_callables(model, (data.clone(),))
    for step in range(1, 6):
        out = run(data * step)
        out.backward(torch.full_like(out, step))
        if step > 1:  # scales depend on the previous step
            scale = model.layer.fp8_meta["scaling_fwd"].scale[0].item()
            largest = data.abs().max().item() * (step - 1)
            assert scale * largest == pytest.approx(240, rel=1e-5)
            scale = model.layer.fp8_meta["scaling_bwd"].scale.item()
            assert scale * (step - 1) == pytest.approx(57344, rel=1e-5)
