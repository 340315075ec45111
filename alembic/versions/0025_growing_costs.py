"""Lower costs: values are compressed once, and an index finds the versions of a table."""

from __future__ import annotations

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None
additive = True

STORAGE = """
-- Compressed in staging, a value was compressed a second time in the log.
alter table only public.wal_events alter record set storage {0}, alter changes set storage {0};
do $$
declare
    segment regclass;
begin
    for segment in select inhrelid from pg_inherits where inhparent = 'public.wal_events'::regclass loop
        begin
            -- Who reads or fills one keeps it as it is, and is not waited for.
            execute format('lock table only %s in access exclusive mode nowait', segment);
            execute format('alter table only %s alter record set storage {0}, alter changes set storage {0}', segment);
        exception when lock_not_available then null;
        end;
    end loop;
end $$;
"""


def upgrade() -> None:
    """For rows that are staged from now on; a segment that is in use at this moment stays as it was."""
    op.execute(STORAGE.format("external"))
    op.execute("create index relations_table_idx on pipeline.relations (table_oid, source_id, epoch)")


def downgrade() -> None:
    """Restore the earlier compression, without the index."""
    op.execute("drop index pipeline.relations_table_idx")
    op.execute(STORAGE.format("extended"))
