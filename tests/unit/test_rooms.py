"""Rooms know each other one way: what the layers of import-linter in pyproject.toml do not say."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "pipeline").glob("**/*.py"))
Graph = Mapping[str, set[str]]

FEATURES = {"client", "comparing", "consumers", "exports", "followers", "rpc", "snapshots", "wires"}
BY_NAME = FEATURES | {"capture.catchup", "capture.replication"}
"""Rooms of which features know only what is listed here."""
KNOWN = {
    "client": {"consumers.queue.consumers"},
    "comparing": set[str](),
    "consumers": set[str](),
    "exports": {"snapshots.render", "snapshots.snapshot_status"},
    "followers": {
        *("comparing.comparison", "comparing.source_rows", "comparing.sql"),
        *("snapshots.sql", "snapshots.known_tables", "snapshots.overview", "snapshots.partitions", "snapshots.start"),
    },
    "rpc": {
        f"consumers.cursor.{name}"
        for name in ("acknowledged_position", "claims", "feed", "frames", "leases", "reading")
    },
    "snapshots": {
        "capture.replication.prepare",
        *(
            f"comparing.{name}"
            for name in ("compared_table", "differing", "log_state", "partition_bounds", "source_rows")
        ),
    },
    "wires": {
        *("capture.catchup.limits", "capture.replication.confirm_rule", "capture.replication.prepare"),
        *("capture.replication.progress_reporter", "capture.replication.stream"),
        *("consumers.sql", "consumers.cursor.claims", "consumers.cursor.feed", "consumers.cursor.leases"),
        *("rpc.calls", "rpc.parsing", "rpc.protos.plugin_pb2", "rpc.service", "rpc.statuses"),
    },
}
REMEDY = "move what both need to a room below them, hand it in from above, or, of a feature, list it in KNOWN"


def imports(files: Iterable[Path] = FILES) -> Graph:
    """What each module imports of the project, without `pipeline.` in front; a statement counts as `room.sql`."""
    paths = {_name(path): path for path in files}
    graph = defaultdict[str, set[str]](set)
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            graph[name] |= {found for found in _imported(node, paths) if found != name}
    return graph


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "pipeline").with_suffix("").parts).removesuffix(".__init__")


def _imported(node: ast.AST, known: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pipeline."):
        room = (node.module or "").removeprefix("pipeline.")
        for each in node.names:
            yield f"{room}.{each.name}" if f"{room}.{each.name}" in known else room
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "statement":
        named = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        if isinstance(named, str) and named in known:
            yield f"{named}.sql"


def folders(graph: Graph) -> Graph:
    """The same of folders. A module beside the rooms is its own folder."""
    packages = {module for module in graph if (ROOT / "pipeline" / module.replace(".", "/") / "__init__.py").exists()}

    def folder(module: str) -> str:
        return module if module in packages or "." not in module else module.rpartition(".")[0]

    found = defaultdict[str, set[str]](set)
    for module, others in graph.items():
        found[folder(module)] |= {folder(other) for other in others} - {folder(module)}
    return found


def circles(graph: Graph) -> list[set[str]]:
    """The sets of nodes that all reach each other."""
    reached = {node: _reached(graph, node) for node in graph}
    found = {frozenset(other for other in reached[node] if node in reached.get(other, ())) for node in graph}
    return [set(each) for each in found if each]


def _reached(graph: Graph, start: str) -> set[str]:
    seen, ahead = set[str](), [start]
    while ahead:
        new = graph.get(ahead.pop(), set[str]()) - seen
        seen |= new
        ahead += new
    return seen


def unlisted(graph: Graph) -> list[str]:
    """Imports between features that KNOWN does not list, and what it lists for nothing."""
    used = {
        (room, other)
        for module, others in graph.items()
        for other in others
        if (room := module.partition(".")[0]) in FEATURES
        if any(other.startswith(f"{each}.") or other == each for each in BY_NAME - {room})
    }
    listed = {(room, other) for room, others in KNOWN.items() for other in others}
    return sorted(f"{room} imports {other}: {REMEDY}" for room, other in used - listed) + sorted(
        f"{room} does not import {other}: take it out of KNOWN" for room, other in listed - used
    )


def test_no_circle_stands_between_files_or_folders() -> None:
    graph = imports()
    for each in (*circles(graph), *circles(folders(graph))):
        raise AssertionError(f"{', '.join(sorted(each))} import each other in a circle: {REMEDY}")


def test_features_know_each_other_by_name() -> None:
    assert unlisted(imports()) == []


def test_a_circle_and_an_import_between_features_are_found() -> None:
    graph = {**imports()}
    graph["followers.registry"] = graph["followers.registry"] | {"snapshots.reader"}
    graph["operate.lag.model"] = graph["operate.lag.model"] | {"operate.preflight.check"}
    assert unlisted(graph) == [f"followers imports snapshots.reader: {REMEDY}"]
    assert any({"operate.lag", "operate.preflight"} <= each for each in circles(folders(graph)))
