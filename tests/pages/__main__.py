"""Runs the blocks of the README, the quickstarts, the use cases and the how-tos as they stand: `make docs-test`.

`python -m tests.pages docs/quickstart.md` runs one page with what is installed here, without `pip install` and `make`.
`--wheel` installs the wheel in an empty environment first, and leaves nothing out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.pages.pages import FIRST, MOST_LEFT_OUT, OTHERS, ROOT, found
from tests.pages.runner import Installation, PageError, running


@contextmanager
def installed() -> Iterator[Installation]:
    """Install the wheel in an empty environment, and check out the last commit."""
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        work = Path(folder)
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(work)]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = work.glob("*.whl")
        subprocess.run([sys.executable, "-m", "venv", work / "venv"], check=True)
        pip = [str(work / "venv" / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], check=True)
        subprocess.run(["git", "clone", "--quiet", ROOT, work / "checkout"], check=True)
        yield Installation(work / "venv" / "bin", wheel, work / "checkout")


def run(pages: list[Path], installation: Installation) -> int:
    """Run the pages one after the other; return how many failed."""
    failed, left_out = 0, []
    for page in pages:
        name, began = page.relative_to(ROOT), time.monotonic()
        try:
            with running(page, installation) as running_page:
                running_page.run()
        except PageError as error:
            failed += 1
            print(f"{name}: failed\n{error}\n", flush=True)
        else:
            left_out += running_page.left_out
            print(f"{name}: as it stands, {time.monotonic() - began:.1f} s", flush=True)
    print("\n".join(["", f"{len(left_out)} blocks left out, {MOST_LEFT_OUT} may be:", *left_out]))
    return failed + (len(left_out) > MOST_LEFT_OUT)


def main() -> int:
    """Run the pages of the command line, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, help="only these")
    parser.add_argument("--wheel", action="store_true", help="in an empty environment with the wheel")
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages] or found((*FIRST, *OTHERS))
    if not arguments.wheel:
        return run(pages, Installation())
    with installed() as installation:
        return run(pages, installation)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
