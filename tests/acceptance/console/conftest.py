"""One Chromium, and one server with something on every screen, for all tests of the folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.fixtures.console_shop import Shop, a_shop
from tests.fixtures.console_tab import ConsoleTab, chromium
from tests.fixtures.folder_scope import shared_in_folder
from tests.fixtures.postgres import Cluster


@pytest.fixture(scope="module")
def shop(request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return shared_in_folder(request, lambda: a_shop(cluster, tmp_path_factory.mktemp("console")))


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Browser:
    return shared_in_folder(request, chromium)


@pytest.fixture
def tab(browser: Browser, shop: Shop) -> Iterator[ConsoleTab]:
    """A tab of the shop's console that must not complain."""
    with ConsoleTab(browser, shop.url) as made:
        yield made
