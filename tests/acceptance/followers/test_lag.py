"""`pipeline status` names the follower that is farthest behind, and why."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.fixtures.served_follower import SHARED, Following
from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group(SHARED)


def lag(following: Following) -> dict[str, Any]:
    given = {"source_dsn": following.source.info.dsn, "database_dsn": following.log.info.dsn}
    found: dict[str, Any] = json.loads(run_command("status", "--json", folder=following.folder, **given).stdout)["lag"]
    return found


def stage(found: dict[str, Any]) -> dict[str, Any]:
    [followed] = [each for each in found["stages"] if each["stage"] == "followed"]
    assert "consumed" not in [each["stage"] for each in found["stages"]], "a follower is no consumer"
    return dict(followed)


@pytest.mark.long
def test_lag_names_the_pid_of_a_lock_and_the_reason_of_a_stop(following: Following) -> None:
    following.add()
    following.source.execute("insert into orders values (1, 's1')")
    following.command("wait", "reports")

    def up_to_date() -> None:
        found = lag(following)
        assert (stage(found)["reader"], found["limited_by"]["part"]) == (None, "nothing")

    eventually(up_to_date)
    with psycopg.connect(following.there.info.dsn, application_name="holder") as holder:
        holder.execute("lock table orders in exclusive mode")
        following.source.execute("insert into orders values (2, 's2')")

        def named() -> None:
            found = lag(following)
            assert found["limited_by"]["part"] == "follower", found
            assert found["limited_by"]["text"].startswith(
                'follower "reports" is farthest behind: the first of 1 seq is '
            )
            assert f"pid {holder.info.backend_pid} (holder, idle in transaction)" in found["limited_by"]["text"]
            assert f"pg_terminate_backend({holder.info.backend_pid})" in found["limited_by"]["remedy"]
            assert (stage(found)["reader"], stage(found)["own_bytes"] > 0) == ("reports", True)

        eventually(named)
    following.command("wait", "reports")
    following.there.execute("delete from orders where id = 2")
    following.source.execute("update orders set note = 'other' where id = 2")
    following.state("stopped")

    def stopped() -> None:
        found = lag(following)
        said = [each["text"] for each in (found["limited_by"], *found["also"]) if each["part"] == "follower"]
        assert [text.partition("; it is ")[2].partition(":")[0] for text in said] == ["stopped"], found

    eventually(stopped)
