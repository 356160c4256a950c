"""The tool that compares the card time of steps with estimates."""

import pytest

from tools import step_times


def test_page_lists_each_mode():
    listed = step_times.table().listed()
    assert listed == [f"{mode}, {kind}" for mode in step_times.MODES for kind in step_times.KINDS]


def test_row_counts_the_steps_within_the_limit():
    cells = step_times.row({"a": 0.0, "b": -0.02, "c": 0.301, "d": -0.5})
    assert cells == ("2 of 4", "16.1%", "50.0%", "c +30%, d -50%")


@pytest.mark.parametrize(("card", "status"), [(1.01, 0), (1.5, 1)])
def test_tool_fails_if_a_step_differs(monkeypatch, capsys, card, status):
    found = {"model": "mlp sgd", "train": True, "card": card, "estimate": 1.0}
    monkeypatch.setattr(step_times, "compared", lambda names, mode: [found])
    monkeypatch.setattr("sys.argv", ["step_times.py", "--modes", "eager", "mlp sgd"])
    assert step_times.main() == status
    assert ("mlp sgd should agree, but differs by +50.0%." in capsys.readouterr().out) is bool(
        status
    )


def test_known_differences_have_causes_and_exist():
    for models in step_times.DIFFERENT.values():
        assert all(models.values())
        assert set(models) <= set(step_times.MODELS)
