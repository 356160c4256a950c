"""Numbers and reports as people read them."""

from __future__ import annotations

import pytest

from hpu_magic import units
from hpu_magic.runtime.present.report import Report


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1024, "1.00 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (14.2 * 1024**2, "14.2 MiB"),
        (96 * 1024**3, "96.0 GiB"),
        (-2048, "-2.00 KiB"),
    ],
)
def test_sizes_are_binary_and_carry_their_unit(count, text):
    assert units.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (2.7e-6, "2.70 µs"),
        (0.0031, "3.10 ms"),
        (0.9999, "1.00 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min 0 s"),
        (125, "2 min 5 s"),
        (7260, "2 h 1 min"),
    ],
)
def test_durations_choose_their_unit(seconds, text):
    assert units.duration(seconds) == text


def test_rates_name_what_they_count():
    assert units.rate(412.3) == "412 steps/s"


def test_report_escapes_what_users_named():
    class Named(Report):
        def title(self):
            return "<title>"

        def rows(self):
            return [("<b>", "a & b")]

        def warnings(self):
            return ["<careful>"]

    html = Named()._repr_html_()
    assert "&lt;b&gt;" in html
    assert "a &amp; b" in html
    assert "<careful>" not in html
    assert "Warning: <careful>" in repr(Named())
