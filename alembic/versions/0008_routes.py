"""Routes: which events tables there are, and from which transaction on what goes to which of them."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TABLES = """
create table pipeline.events_tables (
    source_id uuid not null references pipeline.sources,
    name text not null,
    last_seq bigint,
    events bigint not null default 0,
    added_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (source_id, name)
);
comment on table pipeline.events_tables is
    'Every events table that was ever written for a source: its newest seq, and the events that the shuffler added.';

create table pipeline.routes (
    id bigint generated always as identity primary key,
    source_id uuid not null references pipeline.sources,
    epoch integer not null,
    after_lsn bigint not null,
    events_table text not null,
    routes jsonb not null,
    first_seqs jsonb not null,
    since timestamptz not null default now()
);
create index routes_newest_idx on pipeline.routes (source_id, id);
comment on table pipeline.routes is
    'Which routes held: for transactions of the epoch after after_lsn, until the next row. events_table: the default.';
comment on column pipeline.routes.first_seqs is 'Of each events table the seq below which older routes have decided.';

alter table pipeline.epochs add column after_seqs jsonb not null default '{}';
comment on column pipeline.epochs.after_seqs is 'Last seq of the epoch before, in each events table.';
"""

BACKFILL = """
with log as (
    -- The table that pipeline.events shows is the default one.
    select n.nspname || '.' || t.relname as name
    from pg_rewrite w
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
        and d.refobjid <> w.ev_class
    join pg_class t on t.oid = d.refobjid
    join pg_namespace n on n.oid = t.relnamespace
    where w.ev_class = 'pipeline.events'::regclass
    limit 1
), known as (
    insert into pipeline.events_tables (source_id, name, last_seq, events)
    select p.source_id, log.name, p.last_seq, p.events from pipeline.shuffle_progress p, log
), positions as (
    update pipeline.epochs e set after_seqs = jsonb_build_object(log.name, e.after_seq) from log
)
insert into pipeline.routes (source_id, epoch, after_lsn, events_table, routes, first_seqs, since)
select p.source_id, 0, 0, log.name, '[]', jsonb_build_object(log.name, 1), s.created_at
from pipeline.shuffle_progress p join pipeline.sources s on s.id = p.source_id, log
"""


def upgrade() -> None:
    """Additive; until now everything went to the default table."""
    for part in (TABLES, BACKFILL):
        op.get_bind().exec_driver_sql(part)


def downgrade() -> None:
    """Forget which routes held; events tables stay."""
    op.execute("""
        alter table pipeline.epochs drop column after_seqs;
        drop table pipeline.routes, pipeline.events_tables;
    """)
