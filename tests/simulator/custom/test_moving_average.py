"""Test FusedEMA against its formula in float64: within 1e-6."""

import pytest
import torch
from habana_frameworks.torch.hpex.movingavrg import FusedEMA
from operator_tensors import EAGER, on_device, random_tensors
from trained_weights import assert_all_near

hpu_ops = torch.ops.hpu


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


def test_average_follows_floating_point_values():
    trained = model()
    exact = {name: value.double() for name, value in trained.state_dict().items()}
    average = FusedEMA(trained.to("hpu"), decay=0.5, updates=1999)
    assert not average.ema.training
    assert trained.training
    with torch.no_grad():
        for value in trained.state_dict().values():
            value.add_(1)
    average.update(torch.nn.DataParallel(trained))
    decay = 0.5 * (1 - torch.tensor(-1.0).double().exp().item())
    assert average.updates == 2000
    expected = {
        name: value if name.endswith("tracked") else value * decay + (value + 1) * (1 - decay)
        for name, value in exact.items()
    }
    actual = average.ema.state_dict()
    assert_all_near([actual[name] for name in expected], list(expected.values()), 1e-6)
    assert not any(each.requires_grad for each in average.ema.parameters())


class WithExtraState(torch.nn.Linear):
    def get_extra_state(self):
        return {"steps": 1}

    def set_extra_state(self, state):
        pass


def test_extra_state_of_modules_is_ignored():
    trained = torch.nn.Sequential(WithExtraState(2, 2), torch.nn.Linear(2, 1)).to("hpu")
    average = FusedEMA(trained, decay=0.5, updates=10**6)
    exact = [each.detach().cpu() + 0.5 for each in trained.parameters()]
    with torch.no_grad():
        for each in trained.parameters():
            each.add_(1)
    average.update(trained)
    assert_all_near(list(average.ema.parameters()), exact, 1e-6)


def test_model_without_state_is_supported():
    average = FusedEMA(torch.nn.Identity())
    average.update(torch.nn.Identity())
    assert average.updates == 1


def test_attributes_are_copied_and_invalid_decay_is_rejected():
    trained = model()
    trained.names, trained.process_group, trained.stride = ["a"], "group", 2
    average = FusedEMA(model().to("hpu"))
    average.update_attr(trained, include=("names",))
    assert average.ema.names == ["a"]
    assert not hasattr(average.ema, "stride")
    average.update_attr(trained)
    assert average.ema.stride == 2
    assert not hasattr(average.ema, "process_group")
    with pytest.raises(ValueError, match=r"Invalid decay value: 1\.5"):
        FusedEMA(trained, 1.5)


@EAGER
def test_operator_rejects_lists_of_different_lengths():
    one, number = on_device(random_tensors((2,))), torch.ones(1, device="hpu")
    with pytest.raises(RuntimeError, match="model_inputs and updated_ema vector inputs must have"):
        hpu_ops.optimizer_ema(one, one * 2, number)
