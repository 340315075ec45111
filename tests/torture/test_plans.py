"""What of the torture is pure: plans come from their seed alone, failing ones shrink, and the model is independent."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.torture import record
from tests.torture.faults.faults import KINDS
from tests.torture.faults.mutations import MUTATIONS, ROOT, Edit, Mutation
from tests.torture.followers.mutations import MUTATIONS as OF_FOLLOWERS
from tests.torture.oracle.model import change_of
from tests.torture.partitions.mutations import MUTATIONS as OF_PARTITIONS
from tests.torture.plan.plan import Effect, Fault, Plan, Step
from tests.torture.plan.shrink import shrink
from tests.torture.plan.statements import RUSHING_LANE, TOASTED
from tests.torture.plan.workload import (
    BACKLOGS,
    CATCHUP_FAULTS,
    FAULTS,
    HELD,
    MEDDLING,
    RUSHED,
    SLOW_ONE_IN,
    SNAPSHOT_FAULTS,
    WAY_FAULTS,
    make,
)
from tests.torture.record import Run
from tests.torture.seeds import Outcome

HERE = Path(__file__).parent
MODEL_SIDE = (
    "plan/plan",
    "plan/statements",
    "plan/lane",
    "plan/workload",
    "plan/old_tables",
    "writers/writers",
    "oracle/model",
    "oracle/order",
    "oracle/comparing",
    "oracle/watching",
    "oracle/reading",
)
SMALL = 40


def imported(module: str) -> set[str]:
    """Modules that a file below this folder imports, those below this folder followed."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((HERE / f"{module}.py").read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    own = {own for name in found if (own := is_own(name)) is not None}
    return found.union(*(imported(name) for name in own))


def is_own(name: str) -> str | None:
    """The file below this folder in which a name is, which may be that of the module itself."""
    parts = name.removeprefix("tests.torture.").split(".") if name.startswith("tests.torture.") else []
    there = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((module for module in there if (HERE / f"{module}.py").is_file()), None)


@pytest.mark.parametrize("module", MODEL_SIDE)
def test_the_model_knows_nothing_of_the_product(module: str):
    names = imported(module)
    assert not [name for name in names if name.split(".")[0] == "pipeline"]
    assert all(name.startswith("tests.torture.") for name in names if name.startswith("tests"))


@pytest.mark.parametrize("mutation", [*MUTATIONS, *OF_FOLLOWERS, *OF_PARTITIONS], ids=lambda mutation: mutation.name)
def test_what_a_mutation_replaces_is_in_the_product_once(mutation: Mutation):
    for edit in mutation.edits:
        path, begin, end = edit.find(ROOT)
        assert path.read_text("utf-8").count(edit.old, begin, end) == 1, (edit.place, edit.old)


def test_a_mutation_is_found_by_the_names_of_its_code():
    path, begin, end = Edit("log_writer:LogWriter.append", "", "").find(ROOT)
    text = path.read_text("utf-8")[begin:end]
    assert text.startswith("    async def append(self, batch: ")
    assert text.endswith("return self._result()\n")
    assert "async def advance" not in text
    for wrong in ("no_such_module", "__init__", "log_writer:NoSuchClass", "log_writer:LogWriter.no_such_method"):
        with pytest.raises(ValueError, match=wrong):
            Edit(wrong, "", "").find(ROOT)


def test_a_seed_is_one_plan():
    assert make(7, KINDS) == make(7, KINDS)
    assert make(7, KINDS).show() != make(8, KINDS).show()


def test_every_kind_of_fault_comes_equally_often():
    kinds = {name: kind for name, kind in KINDS.items() if not kind.special}
    quick = sum(kind.often for kind in kinds.values() if not kind.slow)
    seen = Counter(f.kind for seed in range(quick * SLOW_ONE_IN) for f in make(seed, KINDS, SMALL).faults)
    assert {seen[name] / kind.often for name, kind in kinds.items() if not kind.slow} == {FAULTS * SLOW_ONE_IN}
    assert min(seen[name] for name, kind in kinds.items() if kind.slow) >= quick // 2


def test_catch_up_has_faults_of_its_own_and_changes_no_other():
    kinds = {name: kind for name, kind in KINDS.items() if not kind.meddling}
    with_it, without = (make(7, kinds, SMALL, catchup=catchup, old=False) for catchup in (True, False))
    own = [fault for fault in with_it.faults if KINDS[fault.kind].catchup]
    assert len(own) == CATCHUP_FAULTS
    assert with_it.without(own).items == without.items


def test_what_is_read_has_faults_of_its_own_and_changes_no_other():
    kinds = {name: kind for name, kind in KINDS.items() if not kind.snapshot}
    with_it, without = make(7, KINDS, SMALL, old=True), make(7, kinds, SMALL, old=True)
    own = [fault for fault in with_it.faults if KINDS[fault.kind].snapshot]
    assert len(own) == SNAPSHOT_FAULTS
    assert with_it.without(own).items == without.items
    assert not any(KINDS[fault.kind].snapshot for fault in make(7, KINDS, SMALL, old=False).faults)


def test_servers_take_turns_where_ways_are_mixed_and_all_else_stays():
    with_it, without = (make(7, KINDS, SMALL, ways=ways) for ways in ("mixed", "at_once"))
    own = [fault for fault in with_it.faults if KINDS[fault.kind].mixed]
    assert len(own) == WAY_FAULTS
    assert with_it.without(own).items == without.items


def test_a_plan_holds_the_stream_for_a_backlog_and_faults_an_adoption_step():
    with_them, without = make(7, KINDS, SMALL, ways="adopt"), make(7, KINDS, SMALL, ways="staged", odd=False)
    rushed = [item for item in with_them.steps if item.transaction in with_them.rushed]
    assert {step.connection for step in rushed} == {RUSHING_LANE}
    assert sum(step.data.count("\n") for step in rushed) + 20 * sum("generate_series" in s.sql for s in rushed) > 3_000
    assert not {step.transaction for step in without.steps} & with_them.rushed
    for place, fault in enumerate(with_them.items):
        if isinstance(fault, Fault) and fault.kind == HELD:
            before, *behind = with_them.items[place - 1 : place + 1 + 3 * RUSHED[0]]
            assert isinstance(before, Fault)
            assert KINDS[before.kind].adopting
            assert {step.transaction for step in behind[1:] if isinstance(step, Step)} <= with_them.rushed
    assert Counter(KINDS[fault.kind].adopting for fault in with_them.faults)[True] == 2 * BACKLOGS
    assert not without.rushed
    plans = [make(seed, KINDS, SMALL, ways="adopt") for seed in range(10)]
    lasting = {seed for seed, plan in enumerate(plans) for fault in plan.faults if KINDS[fault.kind].lasting}
    assert lasting and lasting <= {0, 5}
    assert not any(KINDS[fault.kind].adopting for fault in without.faults)


def test_half_of_the_seeds_have_tables_that_are_read():
    assert 80 < sum(make(seed, {}, 2, odd=False).old for seed in range(200)) < 120


def test_the_meddler_has_acts_of_his_own_and_changes_no_other():
    kinds = {name: kind for name, kind in KINDS.items() if not kind.meddling}
    with_it, without = (make(7, chosen, SMALL, old=False) for chosen in (KINDS, kinds))
    own = [fault for fault in with_it.faults if KINDS[fault.kind].meddling]
    assert len(own) == MEDDLING
    assert with_it.without(own).items == without.items


def test_a_plan_says_what_a_person_needs_to_do_it():
    shown = make(7, KINDS, SMALL).show().splitlines()
    assert shown[0].split()[:4] == ["1", "t1", shown[0].split()[2], "begin;"]
    assert any("----------" in line for line in shown)
    assert any("prepare transaction 'torture" in line for line in shown)


def test_shrinking_leaves_what_it_takes_to_fail():
    plan = make(7, KINDS, SMALL)
    kind, truncate = plan.faults[0].kind, next(step for step in plan.steps if step.sql.startswith("truncate"))

    def fails(candidate: Plan) -> bool:
        return truncate in candidate.steps and any(fault.kind == kind for fault in candidate.faults)

    small = shrink(plan, fails)
    assert [fault.kind for fault in small.faults] == [kind]
    assert small.transactions == [truncate.transaction]
    assert [step.kind for step in small.steps if step is not truncate] == ["begin", small.steps[-1].kind]
    assert small.show().count("\n") == 3


def test_shrinking_stops_when_its_time_is_over():
    plan = make(7, KINDS, SMALL)
    tried: list[Plan] = []

    def fails(candidate: Plan) -> bool:
        tried.append(candidate)
        return True

    small = shrink(plan, fails, lambda: len(tried) == 2)
    assert small is tried[-1]


def test_a_toasted_value_left_alone_need_not_be_there():
    effect = Effect("public.items", "update", ("id",), ("id", "big"), ("big",))
    long = "x" * TOASTED
    assert change_of(effect, ["1", long]).unchanged == ("big",)
    assert change_of(effect, ["1", "x"]).unchanged == ()


def test_a_run_goes_on_after_the_last_one_of_its_version(tmp_path: Path):
    file = tmp_path / "torture.md"
    file.write_text(record.FILE.read_text().split("| date |")[0] + "| date |\n|---|\n")
    assert record.next_seed(18, file) == 1
    run = Run("18.4", 1)
    run.add(Outcome(1, 9.0, 230, 2_500, Counter({"crash both": 1, "crash log": 2, "keepalive": 1})))
    run.add(Outcome(2, 9.0, 230, 2_500, Counter({"crash log": 1}), "event 3 differs", deeds=Counter(widen=2, insert=1)))
    record.append(run, 30.2, file)
    assert record.next_seed(18, file) == 3
    assert record.next_seed(16, file) == 1
    cells = [cell.strip() for cell in file.read_text().splitlines()[-1].strip("|").split("|")]
    assert cells[1:] == [
        "18.4",
        "30",
        "1 to 2",
        "460",
        "5,000",
        "2 of 1 kinds",
        "5",
        "1: seed 2",
    ]


def test_a_seed_counts_only_if_enough_was_written_at_once():
    run = Run("18.4", 1, "at_once")
    run.add(Outcome(1, 9.0, 230, 2_500, ways=Counter(at_once=1_249, values=1_251)))
    run.add(Outcome(2, 9.0, 230, 2_500, ways=Counter(at_once=1_250, values=1_250)))
    assert (run.seeds, run.counted, run.at_once) == (2, 1, 2_499)
    assert Run("18.4", 1).counts(Outcome(1, 9.0, 230, 2_500))


def test_where_a_backlog_is_to_be_adopted_a_seed_counts_only_if_some_was():
    run = Run("18.4", 1, "all")
    run.add(Outcome(1, 9.0, 230, 2_500, ways=Counter(at_once=2_000, not_adopted=500)))
    run.add(Outcome(2, 9.0, 230, 2_500, ways=Counter(adopt=1_700, values=800), partitions=9))
    assert (run.seeds, run.counted, run.adopted, run.partitions) == (2, 1, [0, 1_700], 9)


@pytest.mark.parametrize("old", [True, False])
def test_a_plan_of_direct_writes_has_small_plain_transactions(old: bool):
    plan = make(7, {}, 300, old=old, ways="at_once")
    odd = {step.transaction for step in plan.steps if re.search(r"(?i)^truncate|^prepare|message\(true", step.sql)}
    odd |= {step.transaction for step in plan.steps if step.effect and step.effect.kept}
    assert 0 < len(odd) < len(plan.transactions) / 10
    assert len(plan.steps) < len(plan.transactions) * 4
    assert not plan.catchup
