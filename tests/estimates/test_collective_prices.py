"""Test the time of collectives on the simulated card's clock."""

import pytest

from hpu_magic import estimate_collective
from hpu_magic.estimates.card_time import CardPrices
from hpu_magic.estimates.cost import links
from hpu_magic.estimates.cost.constants import FITTED

SIZE = 1 << 28


def price(kind, size=SIZE, **changes):
    options = {"cards": 8, "stride": 1, "cards_per_machine": 8, "exchange": "", "starts": True}
    return CardPrices("gaudi2").of_collective(kind, size, **options | changes)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_price_equals_the_estimate_of_the_collective(kind):
    for cards in (2, 8, 64):
        seconds, added, _ = price(kind, cards=cards)
        assert seconds == estimate_collective(kind, SIZE, cards=cards).seconds
        assert added is None


@pytest.mark.parametrize("kind", links.SECONDS)
def test_more_bytes_take_longer_and_more_machines_too(kind):
    small, large = price(kind, size=1 << 20), price(kind)
    if kind != "barrier":
        assert small[0] < large[0]
    if kind not in ("send", "recv"):
        assert large[0] < price(kind, cards=64)[0]


def test_groups_of_distant_cards_use_the_links_between_machines():
    assert price("all_reduce", stride=8)[0] > price("all_reduce")[0]
    assert price("all_reduce", cards_per_machine=4)[0] > price("all_reduce")[0]
    assert price("send", stride=8, cards=16) == price("send", cards=16, stride=1)


def test_bytes_that_each_card_sends():
    assert price("all_gather")[2] == SIZE * 7 / 8
    assert price("all_reduce")[2] == 2 * SIZE * 7 / 8
    assert (price("send")[2], price("recv")[2]) == (SIZE, 0)


def test_exchanges_add_a_multiple_of_their_time_without_starting_again():
    alone = price("all_gather")[0]
    first, later = (price("all_gather", exchange="zero3", starts=each) for each in (True, False))
    assert first[:2] == (alone, FITTED.exchange["zero3"] * alone)
    assert later[0] == pytest.approx(alone - FITTED.link_latency)
    assert later[1] == pytest.approx(FITTED.exchange["zero3"] * later[0])


def test_zero_pays_for_the_reduction_of_whole_gradients_once():
    whole = price("all_reduce", exchange="zero")
    assert whole[1] == price("reduce_scatter", exchange="zero")[1]


def test_band_is_wider_for_more_cards_than_were_measured():
    prices = CardPrices("gaudi2")
    narrow = prices.band
    prices.of_collective(
        "barrier", 0, cards=128, stride=1, cards_per_machine=8, exchange="", starts=True
    )
    assert prices.band[1] > narrow[1]
