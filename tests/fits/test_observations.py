"""Test observations of a fit: waiting for batches, compilations, fallbacks, settings."""

import json
from dataclasses import replace

from hpu_magic.runtime.measure.device_counts import DeviceCounts
from hpu_magic.runtime.training.observation import FitSettings, LoaderSettings, Observation, Waiting

# Each batch takes longer to load than anything else in a step.
SLOW = """
import time, hpu_magic
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        time.sleep(0.04)
        return (torch.randn(8),)
slow = torch.utils.data.DataLoader(Slow(), 2)
"""


def test_lightning_fit_records_waiting_time_settings_and_memory(fits):
    fits(SLOW)
    cell = fits(
        "trainer = make_trainer(max_epochs=3, accumulate_grad_batches=2)\n"
        "result = hpu_magic.fit(trainer, model, slow)"
    )
    assert "waiting for batches" in cell.out
    seen = fits("result.observed").result
    # Three epochs with four batches of two rows.
    assert seen.waited_seconds >= 12 * 0.08
    assert 3 * 0.08 <= seen.first_batches_seconds < seen.waited_seconds / 2
    assert 0.5 < seen.waited_share <= 1
    of_time = {"training_seconds": 0, "waited_seconds": None, "first_batches_seconds": 0}
    of_memory = {"peak": 0, "limit": 0}
    assert replace(seen, **of_time, **of_memory) == Observation(
        "hpu:0",
        "eager",
        FitSettings(
            "32-true", 2, "SGD", LoaderSettings(0, pinned=False, persistent=False), "lightning"
        ),
        epochs=3,
        **of_memory,
    )
    assert 0 < seen.peak < seen.limit


def test_fit_adds_no_attributes_to_the_trainers_loop(fits):
    cell = fits(
        """
        loop = trainer.fit_loop.epoch_loop
        before = set(vars(loop))
        import hpu_magic
        hpu_magic.fit(trainer, model, data)
        set(vars(loop)) - before
        """
    )
    assert cell.result == set()


def test_loop_records_waiting_time_and_loader_settings(fits):
    fits(SLOW)
    cell = fits(
        """
        workers = torch.utils.data.DataLoader(Slow(), 2, num_workers=1, persistent_workers=True)
        seen = []
        for loader in (slow, workers, [torch.randn(2, 8)] * 4):
            for batch in (watched := hpu_magic.watch(loader, device="cpu")):
                pass
            seen.append(watched.result.observed)
        seen
        """
    )
    here, elsewhere, quick = cell.result
    assert here.settings == FitSettings(loader=LoaderSettings(0, pinned=False, persistent=False))
    assert elsewhere.settings.loader == LoaderSettings(1, pinned=False, persistent=True)
    assert quick.settings == FitSettings()
    assert here.waited_share > 0.5
    assert elsewhere.waited_share > 0.5
    assert here.waited_seconds > max(0.08, quick.waited_seconds)
    assert (here.mode, here.epochs) == (None, 1)


def test_fallbacks_are_counted_and_attributed_to_lines(fits):
    fits("import hpu_magic; rows = torch.randn(12, 8)")
    fits("%hpu_ledger on")
    fits(
        """
        for row in (watched := hpu_magic.watch(rows, device="hpu")):
            torch.histc(row.to("hpu"), 4)
            if watched.epoch == 0:
                row.to("hpu").sum().item()
        """
    )
    seen = fits("watched.result.observed").result
    [(operator, count)] = seen.counts.fallbacks.items()
    assert count == 12
    assert seen.later == DeviceCounts(fallbacks={operator: 9})
    lines = {
        (entry.kind, entry.count, entry.where.rpartition(", ")[2]) for entry in seen.ledger.entries
    }
    assert lines >= {("cpu fallback", 12, "line 2"), ("host synchronization", 12, "line 4")}


def test_compilations_after_the_first_steps_are_counted_separately(lazy_process):
    printed = lazy_process(
        """
        import json, hpu_magic
        model = torch.nn.Linear(8, 1).to("hpu")
        seen = []
        for lengths in ([4] * 8, range(5, 13)):
            batches = [torch.randn(length, 8) for length in lengths]
            for batch in (watched := hpu_magic.watch(batches, device="hpu")):
                model(batch.to("hpu")).sum().backward()
                htcore.mark_step()
            seen.append(watched.result.observed)
        print(json.dumps([[one.mode, one.later.compilations] for one in seen]))
        """
    )
    assert json.loads(printed[-1]) == [["lazy", 0], ["lazy", 5]]


def test_fit_that_fails_before_training_has_an_empty_observation(fits):
    fits("torch.histc(torch.randn(8, device='hpu'), 4)")  # counted for the process
    cell = fits(
        """
        class Broken(Model):
            def on_fit_start(self):
                raise ValueError("no data")
        broken_trainer, broken_model = make_trainer(), Broken()
        %hpu_fit broken_trainer broken_model data -o broken
        """,
        fails=True,
    )
    assert "no data" in cell.out
    seen = fits("broken.observed").result
    assert (seen.counts, seen.waited_share, seen.epochs) == (DeviceCounts(), None, 0)


def test_waiting_iterator_ends_with_the_loader():
    clock = Waiting()
    assert list(clock.over(iter("ab"))) == ["a", "b"]
    assert clock.batches == 3  # including the call that raised StopIteration
