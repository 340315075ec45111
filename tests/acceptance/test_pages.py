"""README and quickstarts do as they stand what they show; `make docs-test` runs all other pages, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.pages import FIRST, ROOT, found
from tests.pages.quick_pipeline import quick_pipeline
from tests.pages.runner import COMMAND_TIMEOUT, Installation, running


@pytest.fixture
def installation() -> Iterator[Installation]:
    """Yield what is installed here; its commands are forked, and `make docs-test` starts each as a user does."""
    with quick_pipeline() as quick:
        yield Installation(quick=quick)


@pytest.mark.timeout(2 * COMMAND_TIMEOUT)  # the runner says first what did not happen
@pytest.mark.parametrize("page", found(FIRST), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_block_does_what_the_page_shows(page: Path, installation: Installation) -> None:
    with running(page, installation) as running_page:
        running_page.run()
