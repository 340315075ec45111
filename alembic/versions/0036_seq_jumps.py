"""The place of the last write of the log, and seqs that were skipped because the log may have gone back."""

from __future__ import annotations

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None
additive = True

JUMPS = """
alter table pipeline.identity
    add column system_identifier text,
    add column timeline integer,
    add column database_oid bigint,
    add column table_oid bigint,
    add column written_by xid;
comment on column pipeline.identity.system_identifier is 'The cluster in which the log was last written.';
comment on column pipeline.identity.timeline is 'The timeline of that cluster.';
comment on column pipeline.identity.database_oid is 'The oid of the database.';
comment on column pipeline.identity.table_oid is
    'The oid of this table; null: not written since the upgrade. If the table has another oid, the database was'
    ' restored.';
comment on column pipeline.identity.written_by is
    'The transaction that wrote this row. If the row has another xmin, the data was restored.';
create table pipeline.seq_jumps (
    events_table text not null,
    before bigint not null,
    after bigint not null,
    reason text not null,
    jumped_at timestamptz not null default clock_timestamp(),
    primary key (events_table, after)
);
comment on table pipeline.seq_jumps is
    'Jumps: seqs that an events table skips, because a log that was lost may have had events with them.';
comment on column pipeline.seq_jumps.before is 'The newest event of the table at that time.';
comment on column pipeline.seq_jumps.after is 'The first seq that may follow.';
"""


def upgrade() -> None:
    """Nothing is known of where the log was written; no table has jumped."""
    op.execute(JUMPS)


def downgrade() -> None:
    """Readers that are between two seqs of a jump are no longer told so."""
    op.execute(
        "drop table pipeline.seq_jumps;"
        " alter table pipeline.identity drop column system_identifier, drop column timeline, drop column database_oid,"
        " drop column table_oid, drop column written_by"
    )
