"""The screens of the console in Chromium, beside one server: each fits, everybody can use it, and values are exact."""

from __future__ import annotations

import pytest

from tests.fixtures.console_shop import HOSTILE_KEY, Shop
from tests.fixtures.console_tab import ConsoleTab

pytestmark = pytest.mark.xdist_group("console")  # for --dist loadgroup: one server and one Chromium


def test_each_screen_fits_and_everybody_can_use_it(tab: ConsoleTab) -> None:
    tab.require_good_screens("light")


@pytest.mark.long
def test_each_screen_is_as_good_in_the_dark(tab: ConsoleTab) -> None:
    tab.require_good_screens("dark")


def test_hostile_values_are_shown_as_text(tab: ConsoleTab, shop: Shop) -> None:
    tab.open("events", "?table=public.files")
    tab.page.get_by_role("link", name=HOSTILE_KEY.replace("\n", " ")).click()
    tab.see("History of the row")
    tab.see("<script>alert(1)</script>")
    tab.open("events", "?table=public.files&key=")
    tab.see("content: empty")
    large = shop.one("select seq from sequin_events where record_pk = 'large'")
    tab.open("events", f"?seq={large}")
    tab.see('(5,000,000 characters; "Copy as JSON" has all)')
    assert tab.breaches() == []


def test_numbers_keep_their_digits(tab: ConsoleTab) -> None:
    tab.open("events", "?table=public.orders&key=9007199254740993")
    tab.see("total: 1.50 → 2.50")
    tab.page.locator("tbody tr", has_text="update").get_by_role("link").first.click()
    tab.see("9007199254740993")
    tab.see("2.50")
