"""Test horizontal bars as an SVG image."""

import math
import re
from xml.etree import ElementTree

from hpu_magic.runtime.present import bars


def drawn(rows):
    picture = bars.draw(rows, "first <kind>", "second", " %")
    ElementTree.fromstring(picture)  # well-formed
    return picture


def widths(picture):
    return [float(width) for width in re.findall(r'width="([\d.]+)" height="12"', picture)]


def test_bar_lengths_are_proportional_to_values():
    picture = drawn([("a", 1.0, 0.5), ("b", 4.0, 2.0), ("c", 0.0, 0.0)])
    short, long, empty = widths(picture)
    assert (round(long / short, 2), empty) == (4.0, 0.0)
    assert "<title>b: 4 %, 2 %</title>" in picture
    assert "first &lt;kind&gt;" in picture
    assert ">0 %</text>" in picture
    assert ">4 %</text>" in picture


def test_long_names_are_shortened():
    name = "model.layers.17.self_attention.query_key_value.projection"
    picture = drawn([(name, 1.0, 1.0)])
    assert f"<title>{name}: " in picture
    assert "…" in picture
    assert max(len(text) for text in re.findall(r">([^<>]*)</text>", picture)) <= 34


def test_values_that_are_not_finite_are_labeled():
    picture = drawn([("broken", math.nan, math.inf), ("right", 2.0, 1.0)])
    assert len(widths(picture)) == 1
    assert ">nan</text>" in picture


def test_empty_and_zero_data_are_drawn():
    assert widths(drawn([])) == []
    assert widths(drawn([("a", 0.0, 0.0)])) == [0.0]
