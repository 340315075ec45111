"""Catching up: the parts of a backlog that are staged side by side, and who of their workers may be drained."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

PARTS = """
create table pipeline.catchup_parts (
    source_id uuid not null references pipeline.sources,
    worker integer not null check (worker > 0),
    epoch integer not null,
    from_lsn bigint not null,
    until_lsn bigint check (until_lsn > from_lsn),
    planned_at timestamptz not null default now(),
    primary key (source_id, worker)
);
comment on table pipeline.catchup_parts is
    'A backlog that several workers stage at once: transactions whose commit records begin in [from_lsn, until_lsn).'
    ' Without rows here worker 0 does all; else all before the smallest from_lsn.';
comment on column pipeline.catchup_parts.until_lsn is 'Null: the newest part, which goes on with what comes.';
"""

REACHED = """
create view pipeline.reached_workers as
select source_id, worker, epoch, generation, position, commit_lsn
from (
    select p.source_id, p.worker, p.epoch, p.generation, p.position, p.commit_lsn,
        coalesce(bool_and(p.position >= p.ends_at) over (
            partition by p.source_id order by p.begins_at nulls first rows between unbounded preceding and 1 preceding
        ), true) as reached
    from (
        select p.*, c.from_lsn as begins_at,
            lead(c.from_lsn) over (partition by p.source_id order by c.from_lsn nulls first) as ends_at
        from pipeline.replication_progress p
        left join pipeline.catchup_parts c using (source_id, worker)
        where p.worker = 0 or c.worker is not null
    ) p
) chain
where reached;
comment on view pipeline.reached_workers is
    'Workers before whose part everything is staged: what they stage is next in the order of commits.';
"""


def upgrade() -> None:
    """Additive."""
    for part in (PARTS, REACHED):
        op.execute(part)


def downgrade() -> None:
    """Only where no catch-up is going on: what other workers than the first have staged would be lost."""
    op.execute("""
        do $$ begin
            if exists (select from pipeline.catchup_parts) then
                raise exception 'a catch-up is going on; start the server and let it end first'
                    using errcode = 'object_not_in_prerequisite_state';
            end if;
        end $$;
        drop view pipeline.reached_workers;
        drop table pipeline.catchup_parts;
    """)
