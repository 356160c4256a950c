"""Test cards with the names of the users to whom they are assigned."""

import json
from dataclasses import replace

import pytest

from hpu_magic import monitor
from hpu_magic.monitor import CardReading, Holder, allotted

GIB = 1 << 30
CARD = CardReading(0, 0, "HL-225", "GAUDI2", False, GIB // 2, 96 * GIB)
OTHER = "a process of another user"


@pytest.fixture
def written(tmp_path, monkeypatch):
    path = tmp_path / "card_users.json"
    monkeypatch.setenv(allotted.VARIABLE, str(path))
    return path


@pytest.mark.parametrize(
    ("card", "holders"),
    [
        (replace(CARD, holders=(Holder(7, "a.ipynb", "hub"),)), (Holder(7, "a.ipynb", "ada"),)),
        (replace(CARD, memory_used=9 * GIB), (Holder(0, OTHER, "ada"),)),
        (CARD, ()),  # an assigned card that is free
        (replace(CARD, module_id=3, memory_used=9 * GIB), ()),  # a card that is not assigned
    ],
)
def test_holders_have_the_user_of_an_allotted_card(written, card, holders):
    written.write_text(json.dumps({"0": "ada", "1": "grace"}))
    assert allotted.named([card]) == (replace(card, holders=holders),)


@pytest.mark.parametrize("text", [None, "", "[]", '{"first": "ada"}', '{"0"'])
def test_cards_are_unchanged_without_a_valid_file(written, text):
    if text is not None:
        written.write_text(text)
    card = replace(CARD, memory_used=9 * GIB)
    assert allotted.named([card]) == (card,)


def test_allotted_card_is_not_reported_without_a_holder(written, monkeypatch):
    from hpu_magic.monitor import hlml
    from hpu_magic.monitor.processes import DeviceHolders

    cards = tuple(replace(CARD, index=i, module_id=i, memory_used=9 * GIB) for i in range(2))
    monkeypatch.setattr(hlml, "read", lambda: (cards, DeviceHolders({}, hidden=True)))
    written.write_text('{"0": "ada"}')
    seen = monitor.snapshot()
    assert [[holder.user for holder in card.holders] for card in seen.cards] == [["ada"], []]
    assert seen.reason == ("HPU 1 is in use by processes of other users, which only root can see.")
