"""Break what is known of partitions on purpose, one way at a time, in a copy, and see which directed test notices.

python -m tests.torture.partitions.mutations [--only NAME]
"""

from __future__ import annotations

import sys

from tests.torture.faults.mutations import Edit, Mutation
from tests.torture.followers.mutations import run_each

ROOM, SQL = "pipeline/snapshots", "pipeline/snapshots/sql"
TRUNCATES = f"{ROOM}/functions/partition_truncates.sql"
LOOKS, FOLLOWERS = "tests/integration/snapshots/test_partitions.py", "tests/integration/followers/schema_changes"
LAKE = "tests/spark/test_truncated_partitions.py"


def _mutation(name: str, test: str, *edits: Edit) -> Mutation:
    return Mutation(name, edits, (), (), test)


MUTATIONS = (
    _mutation(
        "rows of a partition that joins are not read",
        f"{LOOKS}::test_rows_that_move_from_the_default_partition_come_back",
        Edit("partition_changes:begin", 'each.what == "attached"]', 'each.what == ""]'),
    ),
    _mutation(
        "one that left is not missed",
        f"{LOOKS}::test_a_partition_that_leaves_makes_the_table_incomplete",
        Edit(f"{ROOM}/partitions.py", "in known.keys() - leaves.keys():", "in known.keys() - known.keys():"),
    ),
    _mutation(
        "one that left and joined again is the same",
        f"{LOOKS}::test_a_partition_that_leaves_and_returns_between_two_looks_is_compared",
        Edit(f"{ROOM}/partitions.py", " or known[oid].attached_by != leaf.attached_by", ""),
    ),
    _mutation(
        "one that was seen gone and returns is read",
        f"{LOOKS}::test_a_partition_that_was_seen_gone_and_returns_is_compared",
        Edit(f"{ROOM}/partitions.py", " or (root, oid) in self._left:", ":"),
        Edit(f"{ROOM}/partitions.py", 'what == "attached" and not leaf.made_so', "False"),
    ),
    _mutation(
        "a table between leaf and root is not looked at",
        f"{LOOKS}::test_a_table_between_that_leaves_and_returns_is_seen_by_its_leaves",
        Edit(f"{SQL}/partition_tree.sql", "concat(i.xmin, ' ', t.attached_by)", "concat(i.xmin, ' ')"),
    ),
    _mutation(
        "one that comes and goes between two looks is not missed",
        f"{LOOKS}::test_a_partition_that_comes_and_goes_between_two_looks_has_left",
        Edit(
            f"{ROOM}/partitions.py",
            "in comparison.compared and oid not in seen.leaves[root]:",
            "in comparison.compared and not oid:",
        ),
    ),
    _mutation(
        "one that left and returned before any look is read",
        f"{LOOKS}::test_a_partition_that_left_and_returned_before_any_look_is_compared",
        Edit(f"{ROOM}/partitions.py", 'what == "attached" and not leaf.made_so', "False"),
    ),
    _mutation(
        "a table stays complete while a partition is read",
        f"{LOOKS}::test_a_table_that_is_attached_with_rows_is_read_alone",
        Edit(
            f"{ROOM}/functions/snapshots.sql",
            "    case when p.id is null then greatest(",
            "    case when true then greatest(",
        ),
    ),
    _mutation(
        "bounds of a partition do not limit what is compared",
        f"{LOOKS}::test_only_keys_within_the_bounds_of_the_partition_are_compared",
        Edit("partition_changes:compare", "within = None if None in bounds else bounds", "within = None"),
    ),
    _mutation(
        "a truncate of a partition is not looked for",
        f"{LOOKS}::test_a_truncate_of_a_partition_makes_the_table_incomplete",
        Edit("register:TableRegister.update", "        self._partition_truncates.store_truncates()\n", ""),
    ),
    _mutation(
        "a truncate of one partition is one of the table",
        f"{LOOKS}::test_a_truncate_without_one_partition_is_none_of_the_table",
        Edit(TRUNCATES, "bool_and(m.seq is not null)", "bool_or(m.seq is not null)"),
    ),
    _mutation(
        "rows between two truncates of partitions are gone",
        f"{LOOKS}::test_a_truncate_without_one_partition_is_none_of_the_table",
        Edit(TRUNCATES, "e.seq > w.first_seq and e.seq < w.last_seq", "e.seq > w.last_seq and e.seq < w.first_seq"),
    ),
    _mutation(
        "a partition that joined later is missing in a truncate",
        f"{LOOKS}::test_a_truncate_of_the_table_makes_nothing_incomplete",
        Edit(TRUNCATES, "c.what <> 'attached' as is_leaf", "true as is_leaf"),
    ),
    _mutation(
        "the lake files truncates under the partitions",
        f"{LAKE}::test_only_a_truncate_of_all_partitions_empties_the_state",
        Edit("spark/lake/changes/whole_truncates.py", "    if not truncated:\n", "    if tables:\n"),
    ),
    _mutation(
        "a follower keeps a partition that left",
        f"{FOLLOWERS}/test_detected_partitions.py::test_a_partition_that_leaves",
        Edit(
            "detected_partitions:PartitionChanges._follow_one",
            "            table.detach_gone(there, theirs)\n",
            "            pass\n",
        ),
    ),
    _mutation(
        "a follower stays stopped at rows that are being read",
        f"{FOLLOWERS}/test_detected_partitions.py::test_a_follower_that_stopped_before_a_partition_was_seen_goes_on",
        Edit(
            "pipeline/followers/running/sql/joined_partitions.sql",
            "c.what in ('attached', 'returned')",
            "c.what = 'returned'",
        ),
    ),
)

if __name__ == "__main__":
    sys.exit(run_each(MUTATIONS, "tests.torture.partitions.mutations", __doc__))
