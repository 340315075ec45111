"""A backlog is read by several slots, twice in a row on one server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from pipeline.capture.source.slots import part_name
from tests.fixtures.catching_up import CatchingUp, catching_up
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import Serving, run_command
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("catching up")  # for --dist loadgroup: the story is told once
ROUNDS = 2


@dataclass
class Round:
    """What was seen while the first worker was held. `moved`: events that came into the log meanwhile."""

    planned: list[tuple[int, int, int | None]] = field(default_factory=list)
    slots: set[str] = field(default_factory=set)
    late_staged: bool = False
    held_at: int = 0
    moved: int = 0
    status: dict[str, Any] = field(default_factory=dict)
    verified: str = ""


@dataclass(frozen=True)
class Story:
    """It has ended, and the server still runs."""

    stage: CatchingUp
    server: Serving
    rounds: list[Round]


@pytest.fixture(scope="module")
def story(quiet_cluster: Cluster, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """A server that fell behind twice and caught up each time."""
    with catching_up(quiet_cluster, cluster, tmp_path_factory.mktemp("serve")) as stage:
        server = stage.serve()
        server.wait_ready()
        stage.streams()
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(fall_behind(stage, server))
            stage.caught_up()
        yield Story(stage, server, rounds)


def fall_behind(stage: CatchingUp, server: Serving) -> Round:
    seen, before, told = Round(), stage.events(), len(server.log().splitlines())

    def all_slots_seen() -> bool:
        """Also of a part that was staged between two looks."""
        lines = map(json.loads, server.log().splitlines()[told:])
        seen.slots = set(stage.slots()) | {line["slot"] for line in lines if line.get("action") == "catchup.streaming"}
        return len(seen.slots) == 3

    with stage.first_worker_held():
        seen.planned = stage.fall_behind()
        eventually(all_slots_seen, 60)
        late = stage.write_one()
        eventually(lambda: stage.staged(late), 60)
        seen.late_staged, seen.held_at = stage.staged(late), stage.positions()[0]
        seen.status = json.loads(command(stage, "status", "--json"))
        seen.verified = command(stage, "verify")
        seen.moved = stage.events() - before
    return seen


def command(stage: CatchingUp, *arguments: str) -> str:
    done = run_command(*arguments, folder=stage.folder, **stage.settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_slots_are_opened_up_to_the_tip(story: Story) -> None:
    anchor = story.stage.slot
    for each in story.rounds:
        assert [worker for worker, _, _ in each.planned] == [1, 2]
        assert each.planned[-1][2] is None
        assert each.slots == {anchor, part_name(anchor, 1), part_name(anchor, 2)}


def test_new_commits_are_staged_while_the_backlog_still_drains(story: Story) -> None:
    for each in story.rounds:
        assert each.late_staged
        assert each.held_at < each.planned[0][1]
        assert each.moved == 0


def test_nothing_is_missing_double_or_out_of_order_across_the_hand_over(story: Story) -> None:
    assert story.stage.version > ROUNDS
    story.stage.require_exact()
    assert "no violations" in command(story.stage, "verify")


def test_slots_and_workers_of_parts_are_gone(story: Story) -> None:
    stage = story.stage
    eventually(lambda: list(stage.slots()) == [stage.slot])
    eventually(lambda: stage.walsenders() == 1)
    eventually(lambda: not any(role.startswith("catch-up") for role in story.server.children()))
    eventually(lambda: (stage.planned(), list(stage.positions())) == ([], [0]))


def test_it_falls_behind_and_catches_up_again_and_again(story: Story) -> None:
    begins = [each.planned[0][1] for each in story.rounds]
    assert begins == sorted(set(begins))
    assert story.server.log().count("catchup.planned") >= ROUNDS
    assert story.server.log().count("catchup.done") >= ROUNDS


def test_status_and_verify_follow_the_parts(story: Story) -> None:
    for each in story.rounds:
        assert [part["worker"] for part in each.status["catchup"]] == [0, 1, 2]
        assert [part["reached"] for part in each.status["catchup"]] == [True, False, False]
        assert each.status["staged_lsn"] == each.status["catchup"][0]["position"]
        assert (each.status["reasons"], each.status["slots"][0]["name"]) == ([], story.stage.slot)
        assert "no violations" in each.verified
