"""Test runs of a `Trainer` on hpu against the same runs on the CPU."""

import importlib
import os
from pathlib import Path

import pytest
from steps import logged, same_weights

BOTH = ("cpu", "hpu")


@pytest.fixture
def fit_both(trainer, loader):
    """A function that compares a fit on both devices; returns the models and trainers."""

    def fit(make_model, make_options=dict, validate=True):
        validation = [loader(shuffle=False)] if validate else []
        models, runs = [], []
        for accelerator in BOTH:
            models.append(make_model())
            runs.append(trainer(accelerator, **make_options()))
            runs[-1].fit(models[-1], loader(), *validation)
        cpu, hpu = map(logged, runs)
        assert hpu == cpu
        same_weights(*models, rtol=0, atol=0)
        return models, runs

    return fit


def test_fit_with_callbacks_equals_the_cpu(lightning, trainer, net, loader, tmp_path):
    callbacks = lightning.callbacks
    models, shown = [], []
    for accelerator in BOTH:
        model = net()
        checkpoint = callbacks.ModelCheckpoint(
            tmp_path / f"{accelerator}-best", monitor="val_loss", save_last=True
        )
        stopping = callbacks.EarlyStopping("val_loss", min_delta=0.02, patience=1)
        monitor = callbacks.LearningRateMonitor(logging_interval="step")
        run = trainer(
            accelerator,
            max_epochs=12,
            accumulate_grad_batches=2,
            gradient_clip_val=0.5,
            enable_checkpointing=True,
            callbacks=[checkpoint, stopping, monitor],
        )
        run.fit(model, loader(), loader(shuffle=False))
        validated = run.validate(model, loader(shuffle=False), verbose=False)
        tested = run.test(ckpt_path="best", dataloaders=loader(shuffle=False), verbose=False)
        predicted = run.predict(model, loader(shuffle=False))
        models.append(model)
        shown.append(
            {
                "steps": (run.current_epoch, run.global_step, stopping.stopped_epoch),
                "callbacks": {name: float(each) for name, each in run.callback_metrics.items()},
                "best": (Path(checkpoint.best_model_path).name, float(checkpoint.best_model_score)),
                "evaluation": (validated, tested),
                "predicted": [batch.tolist() for batch in predicted],
                "rates": {name: list(values) for name, values in monitor.lrs.items()},
                "logged": logged(run),
            }
        )
        assert {(kind, device) for kind, device, _ in model.seen} == {
            (kind, accelerator) for kind in ("train", "val", "test")
        }
        assert model.in_inference_mode
    cpu, hpu = shown
    assert 2 < cpu["steps"][0] < 12
    assert {name: hpu[name] == cpu[name] for name in cpu} == dict.fromkeys(cpu, True)
    same_weights(*models, rtol=0, atol=0)


def test_averaged_weights_equal_the_cpu(lightning, net, fit_both):
    averaging = lightning.callbacks.StochasticWeightAveraging

    def options():
        callback = averaging(swa_lrs=0.05, swa_epoch_start=2, annealing_epochs=2)
        return {"max_epochs": 5, "inference_mode": False, "callbacks": [callback]}

    models, runs = fit_both(net, options)
    for model, run in zip(models, runs, strict=True):
        [callback] = [each for each in run.callbacks if isinstance(each, averaging)]
        assert callback.n_averaged == 4
        assert not model.in_inference_mode


def test_manual_optimization_equals_the_cpu(torch, net, fit_both):
    class Manual(net):
        automatic_optimization = False

        def training_step(self, batch, index):
            body, head = self.optimizers()
            for optimizer in (body, head):
                self.toggle_optimizer(optimizer)
                loss = self.loss(batch, "train")
                self.manual_backward(loss)
                self.clip_gradients(optimizer, 0.05, "value")
                optimizer.step()
                optimizer.zero_grad()
                self.untoggle_optimizer(optimizer)
            if self.trainer.is_last_batch:
                self.lr_schedulers().step()

        def configure_optimizers(self):
            body = torch.optim.Adam(self.body.parameters(), lr=0.02)
            head = torch.optim.SGD(self.head.parameters(), lr=0.1)
            return [body, head], [torch.optim.lr_scheduler.ExponentialLR(head, 0.5)]

    _, runs = fit_both(Manual, validate=False)
    assert [run.global_step for run in runs] == [2 * 4 * 2] * 2


@pytest.mark.skipif("HPU_MAGIC_TEST_LAZY" in os.environ, reason="lazy mode has no compile backend")
def test_compiled_modules_equal_the_cpu(torch, trainer, silent, loader):
    plain, layer, model = silent(), silent(), silent()
    trainer("cpu", max_epochs=1).fit(plain, loader())
    layer.body.compile(backend="hpu_backend")
    trainer("hpu", max_epochs=1).fit(layer, loader(), loader(shuffle=False))
    same_weights(layer, plain, rtol=1e-5, atol=1e-6)
    run = trainer("hpu", max_epochs=1)
    run.fit(torch.compile(model, backend="hpu_backend"), loader(), loader(shuffle=False))
    same_weights(model, plain, rtol=1e-5, atol=1e-6)
    assert str(run.strategy.root_device) == "hpu:0"


@pytest.mark.skipif("HPU_MAGIC_TEST_LAZY" in os.environ, reason="lazy mode has no compile backend")
def test_compiled_module_logs_like_on_the_cpu(torch, trainer, net, loader):
    class Logging(net):
        log = torch.compiler.disable(net.log)

    plain, compiled = trainer("cpu", max_epochs=2), trainer("hpu", max_epochs=2)
    plain.fit(net(), loader(), loader(shuffle=False))
    module = torch.compile(Logging(), backend="hpu_backend")
    compiled.fit(module, loader(), loader(shuffle=False))
    found, expected = compiled.callback_metrics, plain.callback_metrics
    assert found.keys() == expected.keys() >= {"train_loss", "val_loss"}
    torch.testing.assert_close(dict(found), dict(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision_equals_the_cpu(torch, net, fit_both, precision):
    class Plain(net):
        """A model with operators that autocast treats equally on CPU and card."""

        def __init__(self):
            super().__init__()
            del self.body[1]

        def loss(self, batch, kind):
            inputs, labels = batch
            scores = self(inputs)
            self.seen.append((kind, scores.device.type, scores.dtype))
            target = torch.nn.functional.one_hot(labels, 3)
            loss = (scores.float() - target).square().sum() / len(labels)
            # The card would compute a product of the epoch's mean in bfloat16.
            self.log(f"{kind}_loss", loss, on_step=True, on_epoch=False)
            return loss

    models, _ = fit_both(Plain, lambda: {"precision": precision})
    for model in models:
        assert {dtype for *_, dtype in model.seen} == {torch.bfloat16}


def test_float16_losses_are_scaled(torch, trainer, net, loader, tmp_path):
    class Watching(net):
        def on_after_backward(self):
            self.largest = float(self.head.bias.grad.abs().max())

    def fitted(precision, epochs, **options):
        model = Watching()
        run = trainer("hpu", precision=precision, max_epochs=epochs, gradient_clip_val=0.5)
        run.fit(model, loader(shuffle=False), **options)
        return model, run

    full, _ = fitted("32-true", 2)
    half, run = fitted("16-mixed", 2)
    assert {dtype for *_, dtype in half.seen} == {torch.float16}
    assert half.largest > 100 * full.largest
    same_weights(half, full, rtol=0.05, atol=5e-3)
    _, first = fitted("16-mixed", 1)
    first.save_checkpoint(tmp_path / "half.ckpt")
    saved = torch.load(tmp_path / "half.ckpt", weights_only=False)
    assert saved["HPUPrecisionPlugin"]["_growth_tracker"] == 4
    resumed, later = fitted("16-mixed", 2, ckpt_path=tmp_path / "half.ckpt")
    assert later.precision_plugin.state_dict() == run.precision_plugin.state_dict()
    same_weights(resumed, half, rtol=0, atol=0)


def test_accelerator_describes_the_card(torch):
    from habana_frameworks.torch.utils.internal import is_lazy

    for module in ("hpu_magic.lightning", "hpu_magic.lightning.fabric"):
        accelerator = importlib.import_module(module).HPUAccelerator
        assert accelerator.auto_device_count() == 8
        assert accelerator.is_available()
        assert accelerator.get_device_name() == "GAUDI2"
        assert accelerator.is_fp8_available() == (True, "")
        assert accelerator.is_lazy() is is_lazy()
        with pytest.raises(ValueError, match="needs an hpu device, but got 'cpu'"):
            accelerator().setup_device(torch.device("cpu"))
