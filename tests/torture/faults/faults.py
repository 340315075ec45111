"""Faults at their moments: each kind hits what runs just then and, where it lasts, takes itself back."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Literal

import psycopg

from tests.fixtures.postgres import unique
from tests.fixtures.waiting import eventually
from tests.torture.faults import meddler
from tests.torture.faults.meddler import Meddler
from tests.torture.faults.proxy import Proxy
from tests.torture.faults.servers import FIND_WITHIN, SNAPSHOT, SNAPSHOT_WORKER, Servers
from tests.torture.faults.traps import Trap, opening, statement, streamed
from tests.torture.faults.zombies import Zombies, send, stream_name
from tests.torture.plan.plan import Fault
from tests.torture.plan.workload import HELD, FaultKind
from tests.torture.rig import Node, Scene

ANSWER_SECONDS = 1.5
"""How long a worker may act on a keepalive, if it does not at once, before the transaction goes on."""
STATEMENT_WITHIN = 6.0
"""Seconds that a fault waits for its statement; then it comes without."""
READ_WITHIN = 5.0
"""Seconds that a fault waits for a process that reads tables."""
PLAN_WITHIN = 10.0
"""Seconds that a fault of a catch-up waits for one."""
AT_STATEMENT = 0.8
"""How many kills of a role, and cuts and ends of its connection, come at a statement of it, or at its answer."""
CUT_AFTER_FREEZE = 0.5
"""How many freezes end in a reset: whatever was under way then never comes to its end."""
KINDS: Mapping[str, FaultKind] = {
    "kill worker": FaultKind(often=2),
    "kill shuffler": FaultKind(often=2),
    "kill server": FaultKind(),
    "zombie worker": FaultKind(),
    "zombie shuffler": FaultKind(),
    "stranded worker": FaultKind(often=2),
    "terminate walsender": FaultKind(),
    "terminate staging": FaultKind(),
    "terminate shuffle": FaultKind(),
    "terminate control": FaultKind(),
    "crash source": FaultKind(),
    "crash log": FaultKind(),
    "crash both": FaultKind(),
    "cut stream": FaultKind(),
    "cut staging": FaultKind(),
    "cut shuffle": FaultKind(often=2),
    "cut all": FaultKind(),
    "freeze stream": FaultKind((0.2, 1.5)),
    "freeze staging": FaultKind((0.5, 2.0), often=2),
    "freeze shuffle": FaultKind((0.2, 1.5)),
    "freeze all": FaultKind((0.2, 1.5)),
    "keepalive": FaultKind(often=3),
    "kill helper": FaultKind(catchup=True, often=2),
    "freeze helper": FaultKind((0.5, 3.0), catchup=True),
    "hold first worker": FaultKind((0.5, 3.0), catchup=True, often=2),
    "terminate part": FaultKind(catchup=True),
    "kill planner": FaultKind(catchup=True),
    "kill absorber": FaultKind(catchup=True, often=2),
    "cut absorber": FaultKind(catchup=True),
    "no free slot": FaultKind((1.0, 4.0), catchup=True),
    "crash in a catch-up": FaultKind(catchup=True, often=2),
    "kill snapshot": FaultKind(snapshot=True),
    "kill snapshot worker": FaultKind(snapshot=True, often=2),
    "freeze snapshot": FaultKind((0.3, 2.0), snapshot=True),
    "freeze snapshot worker": FaultKind((0.3, 3.0), snapshot=True, often=2),
    "cut snapshot": FaultKind(snapshot=True),
    "invisible commits": FaultKind((0.1, 0.6), snapshot=True, often=4),
    HELD: FaultKind((0.4, 2.0), adopting=True),
    "kill segment": FaultKind(adopting=True, often=2),
    "cut segment": FaultKind(adopting=True),
    "kill attaching": FaultKind(adopting=True, often=2),
    "cut attaching": FaultKind(adopting=True),
    "crash at segment": FaultKind(adopting=True),
    "crash at attaching": FaultKind(adopting=True),
    "hand over": FaultKind(mixed=True, often=2),
    "replace server": FaultKind(mixed=True),
    "stopped server": FaultKind(slow=True),
    "stopped roles": FaultKind(slow=True),
    **meddler.KINDS,
}
"""`stopped`: no helper runs, so another server continues only once the holder counts as frozen."""


class Faults:
    """Carries faults out, each in its own thread. `hits` counts those that hit."""

    def __init__(self, scene: Scene, servers: Servers, seed: int) -> None:
        self._scene = scene
        self._chance = random.Random(seed)
        self._pool = ThreadPoolExecutor(12, "fault")
        self._running: list[Future[None]] = []
        self._of_nodes = {id(node): threading.Lock() for node in (scene.rig.source, scene.rig.log)}
        self._pending = 0
        self._counting = threading.Lock()
        self.hits: Counter[str] = Counter()
        self._servers = servers
        self._zombies = Zombies(scene, servers)
        self._meddler = Meddler(scene, seed)

    def __enter__(self) -> Faults:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    @property
    def pending(self) -> bool:
        """Whether one has not hit yet: what goes on meanwhile is what it hits."""
        return self._pending > 0

    def begin(self, fault: Fault) -> None:
        """Start it and return."""
        with self._counting:
            self._pending += 1
        self._running.append(self._pool.submit(self._run, fault))

    def finish(self) -> None:
        """Until every fault is over. Raises what one of them raised."""
        for running in self._running:
            running.result()
        self._running.clear()

    def _run(self, fault: Fault) -> None:
        told = threading.Event()

        def hit(happened: bool) -> None:
            if not told.is_set():
                told.set()
                with self._counting:
                    self._pending -= 1
                    self.hits.update([fault.kind] * happened)

        try:
            if fault.kind in meddler.KINDS:
                self._meddler.act(fault.kind, fault.seconds, partial(hit, True))
            else:
                _ACTIONS[fault.kind](self, fault, partial(hit, True))
        finally:
            hit(False)

    # --- roles and servers

    def _kill_role(self, role: str, fault: Fault, hit: Callable[[], None]) -> None:
        def kill() -> None:
            pid = self._servers.find(role)
            if pid and send(signal.SIGKILL, pid):
                hit()

        if not self._writes_soon(_WRITES[role]) or not self._at_statement(_WRITES[role], kill):
            kill()

    # --- catch-up: helpers, the plan, its parts

    def _signal_helper(self, number: int, fault: Fault, hit: Callable[[], None]) -> None:
        """A helper is killed, or stopped for a while."""

        def signal_one() -> list[int]:
            self._servers.tend()
            found = self._servers.helpers()
            return [pid for pid in [self._chance.choice(found)] if send(number, pid)] if found else []

        with suppress(AssertionError):
            pids = eventually(signal_one, PLAN_WITHIN)
            hit()
            if number == signal.SIGSTOP:
                time.sleep(fault.seconds)
                send(signal.SIGCONT, *pids)

    def _signal_snapshot(self, name: str, number: int, fault: Fault, hit: Callable[[], None]) -> None:
        """A process that reads tables is killed, or stopped for a while."""

        def signal_one() -> list[int]:
            self._servers.tend()
            found = self._servers.named(name)
            return [pid for pid in [self._chance.choice(found)] if send(number, pid)] if found else []

        with suppress(AssertionError):
            pids = eventually(signal_one, READ_WITHIN)
            hit()
            if number == signal.SIGSTOP:
                time.sleep(fault.seconds)
                send(signal.SIGCONT, *pids)

    def _cut_snapshot(self, fault: Fault, hit: Callable[[], None]) -> None:
        """A range is lost between its rows and its marker, or with both: at the statement that stores it, or after."""
        when: Literal["before", "after"] = self._chance.choice(("before", "after"))
        trap = Trap("pipeline snapshot worker staging", statement("(?i)^commit"), hit, when=when, then="cut")
        with suppress(AssertionError):
            self._scene.rig.log.proxy.arm(trap).wait(READ_WITHIN)

    def _make_commits_invisible(self, fault: Fault, hit: Callable[[], None]) -> None:
        """A commit waits for a standby that does not exist: it is streamed, and no snapshot contains it."""
        with self._of_nodes[id(self._scene.rig.source)]:
            with suppress(psycopg.OperationalError), self._scene.source() as source:
                source.execute("alter system set synchronous_standby_names = 'nobody'")
                source.execute("select pg_reload_conf()")
                hit()
                time.sleep(fault.seconds)
            with self._scene.source() as source:
                source.execute("alter system reset synchronous_standby_names")
                source.execute("select pg_reload_conf()")

    def _hold_first_worker(self, fault: Fault, hit: Callable[[], None]) -> None:
        """The stream of worker 0 stands still: what the helpers stage meanwhile has to wait for it."""
        proxy = self._scene.rig.source.proxy
        with suppress(AssertionError, psycopg.OperationalError):
            self._in_a_catchup()
            name = self._named("stream")
            if proxy.strand(name, whole=True):
                hit()
                time.sleep(fault.seconds)
            proxy.thaw(name)

    def _terminate_part(self, fault: Fault, hit: Callable[[], None]) -> None:
        """The source ends the walsender of a helper, or its other session."""
        with suppress(AssertionError, psycopg.OperationalError):
            self._in_a_catchup()
            source = self._scene.rig.source
            streams = [name for name in source.proxy.names() if " part " in name]
            if source.terminate(self._chance.choice([*streams, "pipeline catch-up"])):
                hit()

    def _at_the_plan(self, name: str, text: str, act: Callable[[], None], hit: Callable[[], None]) -> None:
        """At a statement that changes the plan, or at its answer, or at the commit after it."""
        pattern, within = self._chance.choice(((text, ""), ("(?i)^commit", text)))
        when: Literal["before", "after"] = self._chance.choice(("before", "after"))

        def act_now() -> None:
            act()
            hit()

        trap = Trap(name, statement(pattern, within), act_now, when=when, then="cut")
        with suppress(AssertionError):
            self._scene.rig.log.proxy.arm(trap).wait(PLAN_WITHIN)

    def _hold_stream(self, fault: Fault, hit: Callable[[], None]) -> None:
        """What is committed meanwhile is a backlog."""
        proxy = self._scene.rig.source.proxy
        with suppress(AssertionError):
            eventually(lambda: self._named("stream") in proxy.names(), FIND_WITHIN)
            name = self._named("stream")
            if proxy.strand(name, whole=True):
                hit()
                time.sleep(fault.seconds)
            proxy.thaw(name)

    def _in_adoption(self, step: str, act: Callable[[], None], hit: Callable[[], None]) -> None:
        """In a step of making a segment, or of attaching one: at a statement of it, its answer, or the commit."""
        name, texts = ADOPTION[step]
        text = self._chance.choice(texts)
        pattern, within = self._chance.choice(((text, ""), (text, ""), ("(?i)^commit", text)))
        when: Literal["before", "after"] = self._chance.choice(("before", "after"))

        def act_now() -> None:
            act()
            hit()

        nth = self._chance.choice((1, 1, 2))
        proxy = self._scene.rig.log.proxy
        trap = Trap(name, statement(pattern, within), act_now, nth=nth, when=when, then="cut")
        with suppress(AssertionError):
            proxy.arm(trap).wait(PLAN_WITHIN)
        proxy.traps.remove(trap)  # the end of a seed has no faults
        if trap.fired.is_set():
            trap.wait()

    def _kill_now(self, role: str) -> None:
        for pid in [self._servers.current.children().get(role, 0)]:
            if pid:
                send(signal.SIGKILL, pid)

    def _crash_log(self) -> None:
        self._crash_node(self._scene.rig.log)

    def _no_free_slot(self, fault: Fault, hit: Callable[[], None]) -> None:
        """Others have taken all slots of the source."""
        with suppress(psycopg.OperationalError), self._scene.source() as source:
            with suppress(psycopg.errors.ConfigurationLimitExceeded):
                for _ in range(100):  # an earlier session, with its own slots, may not have ended yet
                    source.execute("select pg_create_physical_replication_slot(%s, false, true)", [unique("taken")])
            hit()
            time.sleep(fault.seconds)

    def _crash_in_a_catchup(self, fault: Fault, hit: Callable[[], None]) -> None:
        with suppress(AssertionError, psycopg.OperationalError):
            self._in_a_catchup()
            self._crash(self._chance.choice((("source",), ("log",), ("source", "log"))), fault, hit)

    def _in_a_catchup(self) -> None:
        """Until there is a plan."""

        def planned() -> bool:
            self._servers.tend()
            with self._scene.log() as log:
                return log.execute("select from pipeline.catchup_parts").rowcount > 0

        eventually(planned, PLAN_WITHIN, (psycopg.OperationalError,))

    def _writes_soon(self, name: str) -> bool:
        return name in _WRITES.values() and self._chance.random() < AT_STATEMENT

    def _at_statement(self, name: str, act: Callable[[], None]) -> bool:
        """Do it at a random statement of that connection, mostly at those that count; False when none came in time."""
        text = self._chance.choice(_MOMENTS[name])
        trap = Trap(
            name,
            statement(text),
            act,
            nth=1 if text == _SELDOM else self._chance.randint(1, 4),
            when=self._chance.choice(("before", "after")),
            then="cut",
        )
        try:
            self._scene.rig.log.proxy.arm(trap).wait(STATEMENT_WITHIN)
        except AssertionError:
            return trap.fired.is_set()
        return True

    def _kill_server(self, fault: Fault, hit: Callable[[], None]) -> None:
        with self._servers.replacing:
            self._servers.kill()
            hit()

    def _hand_over(self, fault: Fault, hit: Callable[[], None]) -> None:
        with self._servers.replacing:
            self._servers.hand_over()
            hit()

    # --- sessions, databases, the network

    def _until(self, act: Callable[[], int], hit: Callable[[], None]) -> None:
        """Try until it hits at least one."""
        with suppress(AssertionError, psycopg.OperationalError):
            eventually(act, FIND_WITHIN, (psycopg.OperationalError,))
            hit()

    def _terminate(self, sessions: tuple[tuple[str, str], ...], fault: Fault, hit: Callable[[], None]) -> None:
        nodes = {"source": self._scene.rig.source, "log": self._scene.rig.log}

        def terminate() -> int:
            return sum(nodes[node].terminate(self._named(name)) for node, name in sessions)

        def terminate_now() -> None:
            if terminate():
                hit()

        written = sessions[0][1]
        if not self._writes_soon(written) or not self._at_statement(written, terminate_now):
            self._until(terminate, hit)

    def _cut(self, node: str, name: str, fault: Fault, hit: Callable[[], None]) -> None:
        if self._writes_soon(name) and self._at_statement(name, hit):
            return
        self._until(lambda: sum(proxy.cut(self._named(name)) for proxy in self._proxies(node)), hit)

    def _freeze(self, node: str, name: str, fault: Fault, hit: Callable[[], None]) -> None:
        proxies = self._proxies(node)
        with suppress(AssertionError):
            eventually(lambda: any(p.names() and self._named(name) != "no-process" for p in proxies), FIND_WITHIN)
            for proxy in proxies:
                proxy.freeze(self._named(name))
            hit()
            time.sleep(fault.seconds)
            if self._chance.random() < CUT_AFTER_FREEZE:
                for proxy in proxies:
                    proxy.cut(self._named(name))
        for proxy in proxies:  # another freeze of this proxy ends too: it was long enough
            proxy.thaw()

    def _named(self, name: str) -> str:
        return stream_name(self._scene) if name == "stream" else name

    def _proxies(self, node: str) -> list[Proxy]:
        rig = self._scene.rig
        return {"source": [rig.source.proxy], "log": [rig.log.proxy]}.get(node, [rig.source.proxy, rig.log.proxy])

    def _crash(self, nodes: tuple[str, ...], fault: Fault, hit: Callable[[], None]) -> None:
        """An immediate shutdown and a start, of both at the same time."""
        rig = self._scene.rig
        threads = [threading.Thread(target=self._crash_node, args=[getattr(rig, node)]) for node in nodes]
        for thread in threads:
            thread.start()
        hit()
        for thread in threads:
            thread.join()

    def _crash_node(self, node: Node) -> None:
        with self._of_nodes[id(node)]:
            node.crash()

    def _keepalive(self, fault: Fault, hit: Callable[[], None]) -> None:
        """One inside of a transaction: its wal_end is that one's commit or the end of the WAL; then perhaps a cut."""
        position = self._chance.choice((int, self._end_of_wal, self._end_of_wal, self._end_of_wal))
        promised = []

        def promise(final_lsn: int) -> int:
            promised.append(position(final_lsn))
            return promised[-1]

        def answer() -> None:
            with suppress(AssertionError, psycopg.OperationalError):
                eventually(lambda: self._confirmed() >= promised[-1], ANSWER_SECONDS, (psycopg.OperationalError,))

        trap = Trap(
            "pipeline ",
            streamed(b"IUDT"),
            answer,
            nth=self._chance.randint(1, 30),
            when="after",
            then=self._chance.choice(("pass", "cut", "cut", "cut")),
            keepalive=promise,
        )
        with suppress(AssertionError):
            self._scene.rig.source.proxy.arm(trap).wait(FIND_WITHIN)
            hit()

    def _confirmed(self) -> int:
        query = "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = %s"
        with self._scene.source() as source:
            row = source.execute(query, [self._scene.slot]).fetchone()
        return int(row[0]) if row else 0

    def _end_of_wal(self, final_lsn: int) -> int:
        with suppress(psycopg.OperationalError), self._scene.source() as source:
            row = source.execute("select (pg_current_wal_flush_lsn() - '0/0')::bigint").fetchone()
            return int(row[0]) if row else final_lsn
        return final_lsn


_WRITES = {"replication": "pipeline staging", "shuffle": "pipeline shuffle"}
"""The connection on which a role writes."""
_SELDOM = opening("log.writing", "store_position")
_PLANNED, _ABSORBED = "catchup_parts", "delete from pipeline.catchup_parts"
"""In the statements that store a plan, and that take over a part."""
ADOPTION = {
    "segment": (
        "pipeline staging",
        (
            opening("log.staging.frontier", "begin_run"),
            "autovacuum_enabled = off",
            "add primary key",
            opening("log.writing", "commit_tables"),
        ),
    ),
    "attaching": ("pipeline shuffle", ("drop constraint adopted_seqs", opening("log.shuffling", "attached"))),
}
"""In the statements of its steps: the reservation, the table, its indexes, what is recorded."""
_MOMENTS = {
    "pipeline staging": ("(?i)^commit", _SELDOM, _SELDOM, ""),
    "pipeline shuffle": ("(?im)^commit", ""),
}
"""What their statements match at which faults come."""
_CONTROL = (("log", "pipeline replication"), ("log", "pipeline serve"), ("source", "pipeline catalog"))
_ACTIONS: Mapping[str, Callable[[Faults, Fault, Callable[[], None]], None]] = {
    "kill worker": lambda faults, *of: faults._kill_role("replication", *of),
    "kill shuffler": lambda faults, *of: faults._kill_role("shuffle", *of),
    "kill server": Faults._kill_server,
    "replace server": Faults._kill_server,
    "hand over": Faults._hand_over,
    "zombie worker": lambda faults, _, hit: faults._zombies.zombie("replication", hit),
    "zombie shuffler": lambda faults, _, hit: faults._zombies.zombie("shuffle", hit),
    "stranded worker": lambda faults, _, hit: faults._zombies.stranded_worker(hit),
    "stopped server": lambda faults, _, hit: faults._zombies.stopped_server(hit),
    "stopped roles": lambda faults, _, hit: faults._zombies.stopped_roles(hit),
    "terminate walsender": lambda faults, *of: faults._terminate((("source", "stream"),), *of),
    "terminate staging": lambda faults, *of: faults._terminate((("log", "pipeline staging"),), *of),
    "terminate shuffle": lambda faults, *of: faults._terminate((("log", "pipeline shuffle"),), *of),
    "terminate control": lambda faults, *of: faults._terminate(_CONTROL, *of),
    "crash source": lambda faults, *of: faults._crash(("source",), *of),
    "crash log": lambda faults, *of: faults._crash(("log",), *of),
    "crash both": lambda faults, *of: faults._crash(("source", "log"), *of),
    "cut stream": lambda faults, *of: faults._cut("source", "stream", *of),
    "cut staging": lambda faults, *of: faults._cut("log", "pipeline staging", *of),
    "cut shuffle": lambda faults, *of: faults._cut("log", "pipeline shuffle", *of),
    "cut all": lambda faults, *of: faults._cut("both", "", *of),
    "freeze stream": lambda faults, *of: faults._freeze("source", "stream", *of),
    "freeze staging": lambda faults, *of: faults._freeze("log", "pipeline staging", *of),
    "freeze shuffle": lambda faults, *of: faults._freeze("log", "pipeline shuffle", *of),
    "freeze all": lambda faults, *of: faults._freeze("both", "", *of),
    "keepalive": Faults._keepalive,
    "kill helper": lambda faults, *of: faults._signal_helper(signal.SIGKILL, *of),
    "freeze helper": lambda faults, *of: faults._signal_helper(signal.SIGSTOP, *of),
    "hold first worker": Faults._hold_first_worker,
    "terminate part": Faults._terminate_part,
    "kill planner": lambda faults, _, hit: faults._at_the_plan(
        "pipeline catch-up", _PLANNED, partial(faults._kill_now, "replication"), hit
    ),
    "kill absorber": lambda faults, _, hit: faults._at_the_plan(
        "pipeline staging", _ABSORBED, partial(faults._kill_now, "replication"), hit
    ),
    "cut absorber": lambda faults, _, hit: faults._at_the_plan("pipeline staging", _ABSORBED, lambda: None, hit),
    "no free slot": Faults._no_free_slot,
    "kill snapshot": lambda faults, *of: faults._signal_snapshot(SNAPSHOT, signal.SIGKILL, *of),
    "kill snapshot worker": lambda faults, *of: faults._signal_snapshot(SNAPSHOT_WORKER, signal.SIGKILL, *of),
    "freeze snapshot": lambda faults, *of: faults._signal_snapshot(SNAPSHOT, signal.SIGSTOP, *of),
    "freeze snapshot worker": lambda faults, *of: faults._signal_snapshot(SNAPSHOT_WORKER, signal.SIGSTOP, *of),
    "cut snapshot": Faults._cut_snapshot,
    "invisible commits": Faults._make_commits_invisible,
    "crash in a catch-up": Faults._crash_in_a_catchup,
    HELD: Faults._hold_stream,
    "kill segment": lambda faults, _, hit: faults._in_adoption(
        "segment", partial(faults._kill_now, "replication"), hit
    ),
    "cut segment": lambda faults, _, hit: faults._in_adoption("segment", lambda: None, hit),
    "kill attaching": lambda faults, _, hit: faults._in_adoption(
        "attaching", partial(faults._kill_now, "shuffle"), hit
    ),
    "cut attaching": lambda faults, _, hit: faults._in_adoption("attaching", lambda: None, hit),
    "crash at segment": lambda faults, _, hit: faults._in_adoption("segment", faults._crash_log, hit),
    "crash at attaching": lambda faults, _, hit: faults._in_adoption("attaching", faults._crash_log, hit),
}
