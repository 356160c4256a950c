"""Test formatting of numbers with units."""

import pytest

from hpu_magic import units

MIB, GIB = 1 << 20, 1 << 30


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
def test_size_is_binary(count, text):
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
def test_duration_has_a_suitable_unit(seconds, text):
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (96 * GIB, "96 GiB"),
        (64 * MIB, "64 MiB"),
        (GIB + GIB // 2, "1.5 GiB"),
        (100 * GIB, "100 GiB"),
        (128 * GIB, "128 GiB"),
        (10 * MIB, "10 MiB"),
        (0, "0 B"),
    ],
)
def test_capacity_has_no_trailing_zeros(count, text):
    assert units.capacity(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (125.2, "2 min 5 s"),
        (599.4, "9 min 59 s"),
        (600, "10 min"),
        (2559, "42 min"),
        (3599.7, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_rough_time_has_reduced_precision(seconds, text):
    assert units.rough(seconds) == text


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (12 * GIB, 96 * GIB, "12.0 / 96 GiB"),
        (3 * MIB, 96 * GIB, "3.00 MiB / 96 GiB"),
        (0, 64 * MIB, "0 B / 64 MiB"),
        (4 * MIB, 64 * MIB, "4.00 / 64 MiB"),
    ],
)
def test_usage_has_one_unit_if_both_are_the_same(used, total, text):
    assert units.usage(used, total) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (0.05, "0.05 samples/s"),
        (42, "42.0 samples/s"),
        (999.4, "999 samples/s"),
        (999.6, "1,000 samples/s"),
        (168537, "169,000 samples/s"),
    ],
)
def test_rate_has_three_digits(per_second, text):
    assert units.rate(per_second, "samples") == text


def test_rate_counts_steps_by_default():
    assert units.rate(412.3) == "412 steps/s"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.149412, "0.1494"),
        (2.699e-13, "2.699e-13"),
        (9999.4, "9999"),
        (22573.2, "22,570"),
        (-999960, "-1,000,000"),
        (8.905e8, "8.905e+08"),
        (float("-inf"), "-inf"),
    ],
)
def test_value_has_four_digits(number, text):
    assert units.value(number) == text


@pytest.mark.parametrize(
    ("most", "unit"), [(200, (1, "B")), (214748, (1 << 10, "KiB")), (96 * GIB, (GIB, "GiB"))]
)
def test_unit_of_an_axis_depends_on_its_maximum(most, unit):
    assert units.size_unit(most) == unit
