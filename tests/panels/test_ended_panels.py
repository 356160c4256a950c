"""Test which objects of ended panels remain in the kernel."""

import gc
import weakref
from collections import Counter

import pytest

from hpu_magic.panels import outputs, widget


@pytest.fixture
def output(shell):
    """Show an output in a shell and return its name."""

    def shown(*, over):
        output = outputs.Output()
        output.show({"text/plain": "a panel"}, over=over)
        return output.id

    return shown


def test_kernel_keeps_live_outputs_and_the_last_sixty_ended_outputs(output):
    live = output(over=False)
    ended = [output(over=True) for _ in range(70)]
    current = outputs.current_outputs(dict.fromkeys([live, *ended], 0))
    assert current["unknown"] == ended[:10]
    assert list(current["outputs"]) == [live, *ended[10:]]


def test_ended_panels_free_their_charts(shell):
    from ipywidgets.widgets.widget import _instances

    from hpu_magic.panels.charts import Charts

    def kept():
        return Counter(type(widget).__name__ for widget in _instances.values())

    def end(panels):
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
