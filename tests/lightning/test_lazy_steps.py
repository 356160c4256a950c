"""Test step marks and step closures in lazy mode; eager mode has none."""

import os

import pytest
from steps import same_weights

LAZY = "HPU_MAGIC_TEST_LAZY" in os.environ


@pytest.fixture
def marks(torch):
    """A function that counts the step marks while another function runs."""
    from habana_frameworks.torch.utils.event_dispatcher import EventDispatcher, EventId

    def count(run):
        dispatcher, seen = EventDispatcher.instance(), []
        handle = dispatcher.subscribe(EventId.MARK_STEP)
        run()
        dispatcher.process(handle, lambda *event: seen.append(event))
        dispatcher.unsubscribe(handle)
        return len(seen)

    return count


def test_each_step_is_marked_in_lazy_mode(trainer, silent, loader, marks):
    model, batches = silent(), loader()
    run = trainer("hpu", max_epochs=1, logger=False)
    counted = [
        marks(lambda: run.fit(model, batches)),
        marks(lambda: run.validate(model, batches, verbose=False)),
        marks(lambda: run.test(model, batches, verbose=False)),
        marks(lambda: run.predict(model, batches)),
    ]
    assert counted == ([2 * 4, 4, 4, 4] if LAZY else [0, 0, 0, 0])


def test_step_closures_run_at_the_marks(torch, trainer, net, loader):
    import habana_frameworks.torch.core as htcore

    class Closing(net):
        def training_step(self, batch, index):
            loss = super().training_step(batch, index)
            before = len(read)
            htcore.add_step_closure(
                lambda value: read.append((before, value.item())), (loss.detach(),)
            )
            losses.append(loss.detach())
            return loss

    read, losses = [], []
    trainer("hpu", max_epochs=1).fit(Closing(), loader())
    expected = [(step, loss.item()) for step, loss in enumerate(losses)]
    assert len(losses) == 4
    assert read == (expected if LAZY else [])


@pytest.mark.skipif(not LAZY, reason="the vendor captures graphs only in lazy mode")
def test_captured_modules_equal_the_cpu(torch, trainer, net, loader):
    import habana_frameworks.torch as ht

    trained, plain = net(), net()
    trainer("cpu").fit(plain, loader())
    ht.hpu.ModuleCacher(max_graphs=4)(model=trained.body, inplace=True)
    trainer("hpu").fit(trained, loader())
    same_weights(trained, plain, rtol=1e-6, atol=1e-7)

    wrapped = net().eval()
    wrapped.to("hpu")
    wrapped.body = ht.hpu.wrap_in_hpu_graph(wrapped.body)
    shown = trainer("hpu").predict(wrapped, loader(shuffle=False))
    expected = trainer("cpu").predict(net(), loader(shuffle=False))
    assert [batch.tolist() for batch in shown] == [batch.tolist() for batch in expected]
