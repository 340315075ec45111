"""The report of `pipeline sources adopt`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.terminal import drawing
from pipeline.wal import lsn


@dataclass(frozen=True)
class AdoptionReport:
    """The result of an adoption. LSNs are integers. `left_at`: the staged position at which the previous epoch ended.

    The new epoch begins at `starts_at`. `kept_slot`: the existing slot is used; `known`: the number of transactions
    that the slot may send again and that are known to be in the log. `begins`: no epoch precedes this one; `marked`:
    the slot carries our mark. `rereads`: tables are compared with the log once a server runs. `sessions`: slots of
    clients' sessions that have ended, because their positions belong to the previous epoch. `upgraded`: the epoch began
    without a gap, after pg_upgrade.
    """

    epoch: int
    reasons: list[str]
    left_at: int
    starts_at: int
    kept_slot: bool
    known: int
    begins: bool = False
    marked: bool = True
    rereads: bool = False
    sessions: Sequence[str] = ()
    upgraded: bool = False

    def lines(self) -> list[str]:
        """The report as text: what was done, and which changes are not in the log."""
        at = lsn.show(self.starts_at)
        if self.begins:
            return [
                f"the slot is taken over: `pipeline serve` streams from {at}; the log will lack changes before that"
            ] + (
                []
                if self.marked
                else ["the slot keeps the mark of the other database until the publication's owner removes its comment"]
            )
        shown = [
            f"epoch {self.epoch} begins at {at}; the previous epoch ended at {lsn.show(self.left_at)}",
        ]
        if self.upgraded:
            shown.append("the slot was kept by pg_upgrade: the log has all changes of the former cluster")
        elif self.kept_slot and self.starts_at <= self.left_at:
            shown.append(
                f"the slot was kept: it sends everything from {at} on, and what is in the log is not written twice"
            )
        elif self.kept_slot:
            shown.append(f"the slot was kept; changes from {lsn.show(self.left_at)} to {at} are not in the log")
        else:
            shown.append(f"a new slot was created; changes before {at} that are not in the log yet will stay missing")
        if self.sessions:
            shown.append(f"{drawing.count(len(self.sessions), 'session')} of clients ended: {', '.join(self.sessions)}")
        if self.rereads:
            shown.append(
                "the next `pipeline serve` compares all tables with the log, and appends what differs;"
                " `pipeline backfill list` shows how far it is"
            )
        return shown
