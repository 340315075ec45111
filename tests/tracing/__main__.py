"""`make trace-path`: the files and folders that a row enters on its way, as a running server says."""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from tests.fixtures.postgres import temporary_server
from tests.fixtures.server import ROOT
from tests.tracing.tracer import WITH_ALL_BELOW, Entered
from tests.tracing.ways import CHANGES, WAYS, trace

NEWEST = 18


def main() -> int:
    arguments = _arguments()
    with temporary_server(NEWEST) as cluster:
        for name in arguments.ways or WAYS:
            log = io.StringIO()
            try:
                with contextlib.redirect_stdout(log):
                    rounds = trace(
                        WAYS[name],
                        cluster,
                        arguments.rounds,
                        arguments.change,
                        before=arguments.before,
                        code=arguments.code,
                    )
            except BaseException:
                print(log.getvalue(), file=sys.stderr)
                raise
            left_out = [
                *(each for what, names in WITH_ALL_BELOW.items() if what not in arguments.include for each in names),
                *arguments.leave_out,
            ]
            print("\n".join(report(WAYS[name].title, rounds, left_out, functions=arguments.functions)), flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("make trace-path", description=__doc__)
    parser.add_argument("ways", nargs="*", choices=[[], *WAYS], metavar="way", help=f"{', '.join(WAYS)}; default: all")
    parser.add_argument("--change", choices=CHANGES, default="insert", help="of the ways staged and direct")
    parser.add_argument("--before", type=int, default=1, help="changes that its table had already; 0: it is the first")
    parser.add_argument("--rounds", type=int, default=5, help="what not all of them enter is listed apart")
    parser.add_argument("--include", choices=WITH_ALL_BELOW, action="append", default=[], help="else left out")
    parser.add_argument("--leave-out", action="append", default=[], metavar="FILE[:FUNCTION]", help="and what it calls")
    parser.add_argument("--functions", action="store_true", help="name the functions too")
    parser.add_argument("--code", type=lambda text: Path(text).resolve(), default=ROOT, help="the folder that runs")
    return parser.parse_args()


def report(
    title: str, rounds: Collection[Collection[Entered]], left_out: Collection[str], *, functions: bool = False
) -> Iterator[str]:
    """Lines: how many files and folders, then those of each process, and what only some rounds have entered."""
    counted = [[each for each in entered if each.counts(left_out)] for entered in rounds]
    always = set[tuple[str, str]].intersection(*({(each.process, each.file) for each in one} for one in counted))
    found = [each for one in counted for each in one if (each.process, each.file) in always]
    yield f"{title}: {_size(each.file for each in found)}, in each of {len(rounds)} rounds"
    for process in dict.fromkeys(each.process for each in found):
        of_process = [each for each in found if each.process == process]
        yield f"  {process}: {_size(each.file for each in of_process)}"
        by_folder = defaultdict[str, dict[str, dict[str, None]]](dict)
        for each in of_process:
            path = PurePosixPath(each.file)
            by_folder[str(path.parent)].setdefault(path.stem, {})[each.stack[0].partition(":")[2]] = None
        for folder, files in by_folder.items():
            yield f"    {folder}: {', '.join(files)}"
            if functions:
                yield from (f"      {file}: {', '.join(names)}" for file, names in files.items())
    sometimes = {each.file for one in counted for each in one} - {each.file for each in found}
    if sometimes:
        yield f"  only in some rounds: {len(sometimes)}, {', '.join(sorted(sometimes))}"


def _size(paths: Iterable[str]) -> str:
    files = set(paths)
    folders = {str(PurePosixPath(each).parent) for each in files}
    of_log = sum(each.startswith("pipeline/log/") for each in files)
    return f"{len(files)} files in {len(folders)} folders, {of_log} of them in pipeline/log"


if __name__ == "__main__":
    sys.exit(main())
