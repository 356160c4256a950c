"""What stays of panels that have ended, in the kernel."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hpu_magic.panels import outputs, widget


@pytest.fixture
def output(shell: Any) -> Callable[..., str]:
    """Show an output in a shell and return its name."""

    def shown(*, over: bool) -> str:
        one = outputs.Output()
        one.show({"text/plain": "a panel"}, over=over)
        return one.id

    return shown


def test_an_output_is_told_as_long_as_it_is_written_over_and_the_last_sixty_afterwards(output):
    live = output(over=False)
    ended = [output(over=True) for _ in range(70)]
    told = outputs.current_outputs(dict.fromkeys([live, *ended], 0))
    assert told["unknown"] == ended[:10]
    assert list(told["outputs"]) == [live, *ended[10:]]


def test_panels_that_ended_leave_their_results_alone(shell):
    from ipywidgets.widgets.widget import _instances

    from hpu_magic.panels.charts import Charts

    def kept() -> Counter[str]:
        return Counter(type(one).__name__ for one in _instances.values())

    def end(panels: int) -> None:
        for _ in range(panels):
            widget.PanelWidget(Charts(capacity=10), lambda: None).finish("<b>finished</b>")

    end(widget._MOST_LEFT)
    before = kept()
    end(3)
    assert kept() == before
    charts = Charts(capacity=10)
    widget.PanelWidget(charts, lambda: None).finish("<b>finished</b>")
    gone = weakref.ref(charts)
    del charts
    gc.collect()
    assert gone() is None
    assert before["VBox"] >= widget._MOST_LEFT
