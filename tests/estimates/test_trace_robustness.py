"""Test traces of unusual models, and the state that a trace must not change."""

import random
from collections import deque
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from hpu_magic.estimates.errors import EstimateError
from hpu_magic.estimates.tracing.optimizers import maker
from hpu_magic.estimates.tracing.program import Phase, Role
from hpu_magic.estimates.tracing.step import StepOptions, trace_step

nn = torch.nn


def traced(model, *inputs, optimizer=None, **kwargs):
    return trace_step(model, inputs, kwargs, StepOptions(optimizer=optimizer))


def test_optimizer_of_the_vendor_is_traced_without_a_card(forked_script):
    printed = forked_script(
        """
        import torch
        from hpu_magic.estimates.tracing.optimizers import maker
        from hpu_magic.estimates.tracing.step import StepOptions, trace_step

        model = torch.nn.Linear(8, 8)
        trace_step(model, (torch.ones(2, 8),), {}, StepOptions(optimizer=maker("FusedAdamW")))
        print(torch.hpu.is_initialized())
        """,
        simulated=True,
    )
    assert "BRIDGE CONFIGURATION" not in printed
    assert printed.splitlines()[-1] == "False"


def test_interrupted_trace_restores_the_model():
    class Interrupted(nn.Linear):
        def forward(self, x):
            self.seen = super().forward(x)
            raise KeyboardInterrupt

    model = Interrupted(4, 4)
    before = dict(model.state_dict(keep_vars=True))
    with pytest.raises(KeyboardInterrupt):
        traced(model, torch.ones(2, 4))
    after = model.state_dict(keep_vars=True)
    assert all(after[name] is before[name] for name in before)
    assert not hasattr(model, "seen")
    assert torch.equal(torch.ones(2) + 1, torch.full((2,), 2.0))


def test_warnings_and_random_numbers_of_a_model_have_no_effect():
    class Recording(nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.losses, self.by_name = [1.0], {"train": []}
            self.recent, self.seen = deque([2.0], maxlen=1), set()

        def forward(self, x):
            out = super().forward(x)
            for container in (self.losses, self.by_name["train"], self.recent):
                container.append(out)
            self.by_name["other"] = out
            self.seen.add(random.random() + np.random.rand())
            torch.manual_seed(0)
            return out

    def drawn():
        on_card = torch.rand((), device="hpu").item()
        return random.random(), np.random.rand(), torch.rand(()).item(), on_card

    def restart():
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(1)

    model = Recording()
    restart()
    expected = drawn()
    restart()
    traced(model, torch.ones(2, 4))
    assert drawn() == expected
    assert (model.losses, model.by_name) == ([1.0], {"train": []})
    assert (model.recent, model.seen) == (deque([2.0], maxlen=1), set())


def test_traces_in_two_threads_are_independent():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    alone = traced(model, torch.ones(2, 8), optimizer=maker("adam"))
    with ThreadPoolExecutor(2) as pool:
        traces = [
            pool.submit(traced, model, torch.ones(2, 8), optimizer=maker("adam")) for _ in range(2)
        ]
        programs = [trace.result() for trace in traces]
    assert [[str(each.operator) for each in program.operations] for program in programs] == [
        [str(each.operator) for each in alone.operations]
    ] * 2
    assert [each.storages for each in programs] == [alone.storages] * 2


def test_known_masks_determine_the_operations():
    class Skipping(nn.Module):
        def forward(self, x, mask):
            chosen = x if mask.all() else x.masked_fill(~mask[..., None], 0)
            return chosen[mask]

    x = torch.ones(2, 3, 4, requires_grad=True)
    whole, part = torch.ones(2, 3, dtype=torch.bool), torch.eye(2, 3).bool()

    def ran(mask):
        options = StepOptions(train=False)
        return trace_step(Skipping(), (x, mask), {}, options).operations

    assert not any("masked_fill" in str(each.operator) for each in ran(whole))
    assert any("masked_fill" in str(each.operator) for each in ran(part))
    assert [ran(mask)[-1].writes[0].shape for mask in (whole, part)] == [(6, 4), (2, 4)]
    with pytest.raises(EstimateError, match=r"line \d+: chosen = x if mask\.all\(\)"):
        ran(whole.to("meta"))


def test_constants_of_the_model_determine_the_operations():
    class Padded(nn.Module):
        def forward(self, ids):
            mask = torch.zeros_like(ids)
            mask[:, :2] = 1
            mask[(torch.arange(2), ids[:, [-1]].squeeze(-1))] = 1
            ends = mask.flip(-1).cumsum(-1).flip(-1).sum(-1).tolist()
            seen.append((0 in ids[:, [-1, 0]], ends))
            return ids + 1

    seen = []
    ids = torch.tensor([[1, 2, 3, 3], [1, 2, 0, 2]])
    trace_step(Padded(), (ids,), {}, StepOptions(train=False))
    Padded()(ids)
    assert seen[0] == seen[1]
    assert ids.tolist() == [[1, 2, 3, 3], [1, 2, 0, 2]]


def test_inputs_do_not_change_if_the_model_writes_to_them():
    class Writing(nn.Module):
        def forward(self, mask):
            mask[0] = 0
            return mask[mask > 0]

    mask = torch.ones(2, 3, dtype=torch.long)
    program = trace_step(Writing(), (mask,), {}, StepOptions(train=False))
    assert program.operations[-1].writes[0].shape == (3,)
    assert mask.sum() == 6


def test_randomly_skipped_layer_is_traced():
    class Skipping(nn.Linear):
        def forward(self, x):
            return x if torch.rand([]) < 0.1 else super().forward(x)

    assert traced(Skipping(4, 4), torch.ones(2, 4)).of_role(Role.GRADIENTS) == 4 * (16 + 4)


def test_ctc_loss_is_traced():
    class Speech(nn.Linear):
        def forward(self, x, y):
            scores = super().forward(x).log_softmax(-1).transpose(0, 1)
            lengths = (x.new_full((2,), each.shape[1], dtype=torch.long) for each in (x, y))
            return nn.functional.ctc_loss(scores, y, *lengths)

    program = traced(Speech(8, 10), torch.ones(2, 12, 8), torch.ones(2, 4, dtype=torch.long))
    (table,) = [
        each.writes[1].shape for each in program.operations if "_ctc_loss." in str(each.operator)
    ]
    assert table == (2, 12, 2 * 4 + 1)
    assert program.of_role(Role.GRADIENTS) == 4 * (80 + 10)


def test_optimizer_with_groups_and_a_scheduler_is_not_stepped():
    model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
    groups = [
        {"params": model[0].parameters(), "momentum": 0.9},
        {"params": [model[1].weight], "momentum": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    program = traced(model, torch.ones(2, 8), optimizer=maker(optimizer))
    # A momentum for each parameter of the first group only; the last bias is in no group.
    assert program.of_role(Role.OPTIMIZER) == 4 * (8 * 16 + 16)
    assert sum(each.times for each in program.of_phase(Phase.OPTIMIZER) if each.times) == 2 * 3 + 1
    assert not optimizer.state
    assert all(each.grad is None for each in model.parameters())


def test_operators_on_lists_include_all_parameters():
    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(3)))
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    program = traced(model, torch.ones(2, 8), optimizer=maker(optimizer))
    roots = [each for each in program.of_phase(Phase.OPTIMIZER) if "sqrt" in str(each.operator)]
    assert [(len(each.writes), each.times) for each in roots] == [(3, 1)]


def test_operator_without_a_fake_kernel_is_refused_with_a_fix():
    @torch.library.custom_op("hpu_magic_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    class Custom(nn.Module):
        def forward(self, x):
            return twice(x)

    with pytest.raises(
        EstimateError, match=r"^hpu_magic_tests::twice cannot infer its output shapes .*twice\(x\)"
    ):
        trace_step(Custom(), (torch.ones(2),), {}, StepOptions(train=False))


def test_error_names_the_line_of_a_tensor_on_another_device():
    class Scaled(nn.Module):
        scale = torch.ones(4)

        def forward(self, x):
            return x * self.scale

    with pytest.raises(EstimateError, match=r"line \d+: return x \* self\.scale.*register_buffer"):
        trace_step(Scaled(), (torch.ones(2, 4),), {}, StepOptions(train=False))


def test_training_step_of_a_lightning_module_is_used(recwarn):
    lightning = pytest.importorskip("lightning")

    class Fitted(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def training_step(self, batch, _):
            x, y = batch
            loss = (self.layer(x) - y).abs().mean()
            self.log("loss", loss)
            return loss

    program = traced(Fitted(), (torch.ones(2, 4), torch.ones(2, 4)))
    assert "aten.abs.default" in [str(each.operator) for each in program.operations]
    assert program.of_role(Role.GRADIENTS) == 4 * (16 + 4)
    assert not [each for each in recwarn if "self.log" in str(each.message)]


def test_lightning_module_of_a_fit_is_traced_without_its_trainer():
    lightning = pytest.importorskip("lightning")
    metrics = pytest.importorskip("torchmetrics")

    class Fitted(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.accuracy = metrics.Accuracy(task="multiclass", num_classes=3)

        def training_step(self, batch, _):
            x, labels = batch
            out = self.layer(x)
            self.log("accuracy", self.accuracy(out, labels))
            self.log_dict({"lr": 1.0})
            return nn.functional.cross_entropy(out, labels)

    model = Fitted()
    quiet = {"logger": False, "enable_checkpointing": False, "accelerator": "cpu"}
    model.trainer = trainer = lightning.Trainer(**quiet)
    before = dict(vars(model)), dict(vars(model.accuracy))
    program = traced(model, torch.ones(2, 4), torch.tensor([0, 2]))
    assert (dict(vars(model)), dict(vars(model.accuracy))) == before
    assert model.trainer is trainer
    assert any(each.module == "accuracy" for each in program.operations)


def test_lightning_module_without_training_step_is_called():
    lightning = pytest.importorskip("lightning")

    class Plain(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x)

    class Asking(Plain):
        def training_step(self, batch):
            return self(batch).sum() * self.trainer.current_epoch

    x = torch.ones(2, 4)
    assert traced(Plain(), x).of_role(Role.GRADIENTS) == 4 * (16 + 4)
    with pytest.raises(EstimateError, match=r"The step cannot run: .*Asking is not attached"):
        traced(Asking(), x)


@pytest.mark.parametrize(
    ("name", "message"), [("muon", "only supports 2D"), ("adafactor", "values")]
)
def test_error_explains_why_an_optimizer_cannot_be_traced(name, message):
    with pytest.raises(EstimateError, match=message):
        traced(nn.Linear(4, 4), torch.ones(2, 4), optimizer=maker(name))


def test_error_includes_the_memory_without_activations():
    class Choosing(nn.Linear):
        def forward(self, x):
            return super().forward(x) if x.sum() > 0 else x

    with pytest.raises(EstimateError) as raised:
        traced(Choosing(1024, 1024, bias=False), torch.ones(2, 1024), optimizer=maker("adamw"))
    expected = "needs: weights 4.00 MiB, gradients 4.00 MiB, optimizer 8.00 MiB."
    assert str(raised.value).endswith(expected), str(raised.value)


def test_wrapped_modules_keep_their_graphs(forked_script):
    printed = forked_script(
        """
        import torch
        from hpu_magic.estimates.estimate import estimate
        from hpu_magic.runtime.device import device
        from hpu_magic import wrap

        hpu = device.torch_with_hpu().hpu
        wrappers = {
            "inference": hpu.wrap_in_hpu_graph,
            "training": lambda model: hpu.ModuleCacher(max_graphs=2)(model=model, inplace=True),
            "by one": lambda model: hpu.make_graphed_callables(model, (x,)),
            "ours": wrap,
        }
        x = torch.ones(2, 4, device="hpu")
        for name, wrapped in wrappers.items():
            train = name != "inference"
            model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).to("hpu")
            model.train(train)
            plain = repr(estimate(model, x, train=train))
            with torch.set_grad_enabled(train):
                expected = model(x).tolist()
                wrapped(model)
                forward = vars(model)["forward"]
                same = repr(estimate(model, x, train=train)) == plain
                print(name, same, vars(model)["forward"] is forward, model(x).tolist() == expected)
        """,
        simulated=True,
        PT_HPU_LAZY_MODE="1",
    )
    seen = printed.splitlines()[-4:]
    assert seen == [
        f"{name} True True True" for name in ("inference", "training", "by one", "ours")
    ]
