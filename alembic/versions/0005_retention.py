"""Retention: what was dropped of each events table, and lakes that hold nothing back any more."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

RETENTION = """
create table pipeline.retention (
    events_table text primary key,
    dropped_below bigint not null default 1,
    dropped_at timestamptz not null default now(),
    dropping oid,
    dropping_name text,
    dropping_since timestamptz
);
comment on table pipeline.retention is
    'What retention has dropped of an events table: every seq below dropped_below, or it is about to.';
comment on column pipeline.retention.dropping is
    'The partition that is on its way out; who comes after a crash goes on with it.';
"""

LAKES = """
alter table pipeline.lakes add column released_at timestamptz;
comment on column pipeline.lakes.released_at is
    'Since when retention no longer waits for exports to this lake; null: it does.';
"""

FLOOR = """
create or replace function pipeline.log_floor() returns bigint
language sql stable set search_path = ''
as $$
    -- Every event after this seq is kept: {meaning}.
    select greatest(
        coalesce(min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''(\\d+)''\\)'))[1]::bigint) - 1, 0),
        {dropped})
    from pg_rewrite w
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
        and d.refobjid <> w.ev_class
    left join pg_inherits i on i.inhparent = d.refobjid and not i.inhdetachpending
    left join pg_class c on c.oid = i.inhrelid
    where w.ev_class = 'pipeline.events'::regclass and d.refobjsubid = 1
$$
"""
WITH_RETENTION = {
    "meaning": "what retention has left, which may begin inside of a partition",
    "dropped": """coalesce(max((
            select r.dropped_below - 1
            from pipeline.retention r
            join pg_class t on t.oid = d.refobjid
            join pg_namespace n on n.oid = t.relnamespace
            where r.events_table = n.nspname || '.' || t.relname
        )), 0)""",
}
WITHOUT = {"meaning": "the lower bound of the first partition, less one", "dropped": "0"}


def upgrade() -> None:
    """Additive; a consumer that begins at the beginning begins with what retention has left."""
    for part in (RETENTION, LAKES, FLOOR.format(**WITH_RETENTION)):
        op.get_bind().exec_driver_sql(part)


def downgrade() -> None:
    """Forget what was dropped; what is gone stays gone."""
    op.get_bind().exec_driver_sql(FLOOR.format(**WITHOUT))
    op.execute("""
        alter table pipeline.lakes drop column released_at;
        drop table pipeline.retention;
    """)
