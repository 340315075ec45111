"""A source whose publications exist, without a worker; sessions made there are ended after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.session_site import Site, first_start, site_at


@pytest.fixture(scope="module")
def module_site(cluster: Cluster) -> Iterator[Site]:
    with site_at(cluster, cluster) as site:
        first_start(site)
        yield site


@pytest.fixture
def site(module_site: Site) -> Iterator[Site]:
    yield module_site
    module_site.clear()


@pytest.fixture(scope="module")
def module_any_site(any_cluster: Cluster, cluster: Cluster) -> Iterator[Site]:
    with site_at(any_cluster, cluster) as site:
        first_start(site)
        yield site


@pytest.fixture
def any_site(module_any_site: Site) -> Iterator[Site]:
    """At each version in turn."""
    yield module_any_site
    module_any_site.clear()
