"""Epochs: which history of the source an LSN belongs to, what was published, and which writer is fenced."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

FENCING = """
alter table pipeline.replication_progress add column backend_pid integer, add column backend_start timestamptz;
comment on column pipeline.replication_progress.backend_pid is
    'The session of the newest writer, with backend_start: a newer one may end it.';
"""

EPOCHS = """
alter table pipeline.sources add column timeline integer, add column published jsonb not null default '{}';
comment on column pipeline.sources.timeline is 'Timeline of the source when we last connected; null until then.';
comment on column pipeline.sources.published is
    'What the publications in use published when we last looked: a change that narrows it is a gap.';

create table pipeline.epochs (
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    system_identifier text not null,
    timeline integer,
    from_lsn bigint not null,
    previous_position bigint,
    after_seq bigint not null default 0,
    reason text not null,
    started_at timestamptz not null default now(),
    primary key (source_id, epoch)
);
comment on table pipeline.epochs is
    'Every history of the source that we followed: LSNs compare only inside one. Begun by pipeline sources adopt.';
comment on column pipeline.epochs.previous_position is 'How far the epoch before was staged when this one began.';
comment on column pipeline.epochs.after_seq is 'Last seq of the epoch before.';

create table pipeline.carried_transactions (
    source_id uuid not null references pipeline.sources,
    commit_lsn bigint not null,
    committed_at timestamptz not null,
    primary key (source_id, commit_lsn, committed_at)
);
comment on table pipeline.carried_transactions is
    'Transactions of earlier epochs that the slot of a restored source may send again: those that match are skipped.';

insert into pipeline.epochs (source_id, epoch, system_identifier, from_lsn, reason, started_at)
select s.id, s.epoch, s.system_identifier, p.position, 'was there before epochs were recorded', s.created_at
from pipeline.sources s
join pipeline.replication_progress p on p.source_id = s.id and p.worker = 0;
"""


def upgrade() -> None:
    """Additive: what is stored stays as it is."""
    for part in (FENCING, EPOCHS):
        op.execute(part)


def downgrade() -> None:
    """Forget epochs; those of the events stay."""
    op.execute("""
        drop table pipeline.carried_transactions, pipeline.epochs;
        alter table pipeline.sources drop column timeline, drop column published;
        alter table pipeline.replication_progress drop column backend_pid, drop column backend_start;
    """)
