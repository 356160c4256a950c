"""Test the published measurements, and the tables with the errors of estimates."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from priced_programs import traced
from scipy.optimize import least_squares

PROJECT = Path(__file__).parents[2]
sys.path.insert(0, str(PROJECT / "tools"))

from calibration.batch import Batch  # noqa: E402  (needs the path above)
from calibration.fit import (  # noqa: E402  (needs the path above)
    PRIORS,
    Figures,
    errors_of,
    fitted,
    spread,
    values,
    with_values,
)
from calibration.layers import alike_added  # noqa: E402
from calibration.measurements import (  # noqa: E402
    BATCHED,
    KINDS,
    PRODUCTS,
    SINGLE,
    TRAINING,
    Measurement,
    job_of,
    measurements,
    rows_of,
    with_mask,
)
from calibration.selection import Selection, band  # noqa: E402
from website import estimates  # noqa: E402

from hpu_magic.estimates.cost.constants import BANDS, FITTED, MEANINGS  # noqa: E402
from hpu_magic.estimates.cost.pricing import add_up, price, seconds_of  # noqa: E402


@pytest.fixture(scope="module")
def products():
    return [job_of(each) for each in measurements() if each.kind == PRODUCTS]


def table(text, heading):
    return text[text.index(f"## {heading}\n") :].partition("\n## ")[0]


def test_tables_list_all_measurements_and_constants():
    text = estimates.tables()
    for kind in KINDS:
        rows = table(text, f"{kind[0].upper()}{kind[1:]}")
        published = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([\d.e+]+) ", rows, re.MULTILINE)
        assert published == [
            (one.job, f"{one.value:.4g}") for one in measurements() if one.kind == kind
        ]
    peaks = re.findall(
        r"^\| [^|]+ \| [^|]+ \| ([\d.e+]+ \w+) ", table(text, "Memory"), re.MULTILINE
    )
    assert peaks == [f"{float(row['value']):.4g} {row['unit']}" for row in rows_of("memory.tsv")]
    assert set(re.findall(r"^\| `([\w.]+)` ", table(text, "Constants"), re.MULTILINE)) == set(
        PRIORS
    )


def test_tables_compare_estimates_with_published_values():
    measured = list(measurements())
    peaks = [float(row["value"]) * 1.5 for row in rows_of("memory.tsv")]
    figures = Figures([one.value * 1.2 for one in measured], [-0.3] * len(measured), peaks)
    text = estimates.tables(figures)
    for kind in KINDS:
        for row in table(text, f"{kind[0].upper()}{kind[1:]}").splitlines()[4:]:
            assert "| +20% | -30% |" in row
    assert all("| +50% |" in row for row in table(text, "Memory").splitlines()[7:])
    for row in table(text, "Errors by kind of work and generation").splitlines()[4:]:
        assert row.endswith("| 20% | 20% | 30% | 30% |")
    for row in table(text, "Errors by family, held out of the fit").splitlines()[4:]:
        assert row.endswith("| 30% | 30% |")


def test_all_constants_are_explained():
    assert {name.partition(".")[0] for name in PRIORS} == set(MEANINGS) == set(vars(FITTED))
    assert all(factor > 1 for factor in BANDS.values())


def test_fit_recovers_the_constants_of_artificial_measurements(products):
    measured = [each.measurement for each in products]
    made = with_values(FITTED, values(FITTED).values())
    errors = [each.estimate(made) / each.estimate(FITTED) - 1 for each in products]
    assert errors == pytest.approx([0.0] * len(measured))
    better = fitted(Batch(products))
    assert (
        spread([each.estimate(better) / each.measurement.value - 1 for each in products])[0] < 0.1
    )


def test_fit_does_not_depend_on_the_current_constants(products, monkeypatch):
    batch = Batch(products)
    expected = values(fitted(batch))
    doubled = with_values(FITTED, [2 * value for value in values(FITTED).values()])
    monkeypatch.setattr("calibration.fit.FITTED", doubled)
    assert values(fitted(batch)) == pytest.approx(expected)


def test_fit_takes_the_best_of_several_starting_points(products, monkeypatch):
    fits = []

    def recorded(*arguments, **options):
        fits.append(least_squares(*arguments, **options))
        return fits[-1]

    monkeypatch.setattr("calibration.fit.least_squares", recorded)
    found = list(values(fitted(Batch(products))).values())
    assert len({tuple(fit.x) for fit in fits}) == len(fits) > 1
    assert found == pytest.approx(np.exp(min(fits, key=lambda fit: fit.cost).x))


def test_attention_with_a_mask_computes_all_scores():
    attention = torch.nn.functional.scaled_dot_product_attention

    class Attention(torch.nn.Module):
        def forward(self, x):
            return attention(x, x, x, is_causal=True)

    program = traced(Attention(), 2, 8, 1024, 128)
    causal, masked = (
        price(each, "gaudi2", fused_attention=True).seconds
        for each in (program, with_mask(program))
    )
    assert causal < masked


@pytest.mark.parametrize(
    ("kind", "wanted", "band"),
    [
        (PRODUCTS, {}, None),
        (TRAINING, {"parallel": "zero2"}, BANDS["training"]),
        (TRAINING, {"parallel": "fsdp", "mode": "compile"}, BANDS["unmeasured"]),
        (SINGLE, {"cards": "1", "new": "100"}, BANDS["single sequences"]),
        (SINGLE, {"cards": "8", "new": "100"}, BANDS["unmeasured"]),
        (SINGLE, {"new": "1"}, BANDS["passes"]),
        (BATCHED, {"cards": "8"}, BANDS["batches"]),
    ],
)
def test_measurements_have_the_bands_of_their_estimates(kind, wanted, band):
    alike = [
        one for one in measurements() if one.kind == kind and wanted.items() <= one.row.items()
    ]
    assert alike
    assert {one.band for one in alike} == {band}


def named(jobs, families):
    """Return copies of jobs, with measurements that belong to other model families."""
    return [
        replace(job, measurement=Other({**job.measurement.row, "model": family}, PRODUCTS))
        for job, family in zip(jobs, families, strict=True)
    ]


class Other(Measurement):
    @property
    def family(self):
        return self.row["model"]


def test_regularization_is_chosen_without_the_family_that_it_is_judged_on(products):
    batch = Batch(named(products, "aabbccdd"))
    loose = {name: (value, 0.5) for name, (value, _) in PRIORS.items()}
    wrong = {name: (value / 3, 0.001) for name, (value, _) in PRIORS.items()}
    selection = Selection(batch, {"wrong": wrong, "loose": loose})
    chosen, errors = selection.nested()
    assert chosen == dict.fromkeys("abcd", "loose")
    assert selection.best() == "loose"
    constants = fitted(batch, loose, ["a"])
    assert errors[:2] == pytest.approx(errors_of(batch, constants)[:2])
    assert np.abs(errors).max() < 0.3


def test_few_families_widen_the_band(products):
    errors = np.array([0.1, -0.1] * 4)
    few, many = (
        band(Batch(named(products, families)), errors, PRODUCTS)
        for families in ("aaaabbbb", "abcdefgh")
    )
    assert few > many > 1.1
    assert band(Batch(named(products, "abcdefgh")), errors, PRODUCTS, 0.8) < many


@pytest.mark.parametrize("kind", [SINGLE, TRAINING])
def test_steps_of_deep_models_are_extrapolated_from_shallow_ones(shell, monkeypatch, kind):
    from calibration import models

    monkeypatch.setitem(models.LAYERS, "gpt2-xl", 6)
    one = next(
        each for each in measurements() if each.row["model"] == "gpt2-xl" and each.kind == kind
    )
    from_shallow = job_of(one)
    monkeypatch.setattr(
        "calibration.measurements._of_all_layers", lambda model, step: alike_added(step(6))
    )
    whole = job_of(one)
    for (ours, times), (expected, often) in zip(from_shallow.steps, whole.steps, strict=True):
        assert times == often
        for name in ("arrays", "instructions", "moved", "operators"):
            found, expected_sum = (
                np.sum(getattr(step.operations, name)) for step in (ours, expected)
            )
            assert found == pytest.approx(expected_sum)
        prices = [
            add_up(step, seconds_of(step, FITTED), FITTED).seconds for step in (ours, expected)
        ]
        assert prices[0] == pytest.approx(prices[1])
        for name in ("gradients", "gradient_tensors", "weights"):
            assert getattr(ours, name) == getattr(expected, name)
