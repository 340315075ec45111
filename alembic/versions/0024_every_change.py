"""Records consumers that do not collapse: every event is an item, which waits behind the earlier ones of its row."""

from __future__ import annotations

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None
additive = True

EVERY_CHANGE = """
alter table pipeline.consumers add column collapse boolean default true;
comment on column pipeline.consumers.collapse is
    'records: true if an item is a row with its last change, false if each event is an item. It never changes.';
create function pipeline.keep_collapse() returns trigger language plpgsql set search_path = ''
as $$
begin
    raise object_not_in_prerequisite_state using
        message = 'collapse of consumer ' || quote_literal(old.name) || ' cannot be changed',
        hint = 'Create another consumer that begins where this one is, and drop this one.';
end $$;
revoke execute on function pipeline.keep_collapse from public;
create trigger consumers_keep_collapse before update of collapse on pipeline.consumers
    for each row when (old.collapse is distinct from new.collapse) execute function pipeline.keep_collapse();
comment on column pipeline.consumer_progress.consumer_id is
    'The value of pipeline.progress_id, so that servers of earlier versions find only consumers that they can serve.';

-- Its values are those that the functions write; a longer list would be a new demand on servers of versions before.
alter table public.consumer_records drop constraint consumer_records_state_check,
    add column left_pk text collate "C", add column is_alone boolean;
comment on column public.consumer_records.unkeyed is
    'seq if each event is a separate item, else 0; negative in a dead letter, behind which no item waits.';
comment on column public.consumer_records.state is
    'available, blocked (behind an earlier item of its row or group), delivered, pending_redelivery or dead.';
comment on column public.consumer_records.left_pk is
    'If each event is an item: the previous key of the row, if the event changed it. The item waits behind items of'
    ' that key, too.';
comment on column public.consumer_records.is_alone is
    'If each event is an item: true if the event belongs to no row, so the item waits behind no other. Null: the'
    ' consumer collapses.';
create index consumer_records_blocked_idx on public.consumer_records (consumer_id, queued_seq) where state = 'blocked';
create index consumer_records_left_idx on public.consumer_records (consumer_id, source_table_oid, left_pk, unkeyed)
    where left_pk is not null;
comment on table pipeline.consumer_touches is
    'Changes and items that wait because an open transaction of a client has locked an item. The shuffler checks'
    ' them again until it ends.';
"""
COLLAPSED = """
do $$
begin
    if exists (select from pipeline.consumers where not collapse) then
        raise exception using message = 'consumers that do not collapse, which the version before does not know: '
            || (select string_agg(name, ', ' order by name) from pipeline.consumers where not collapse),
            hint = 'Drop them first: `pipeline consumers delete NAME`.';
    end if;
end $$;
drop view if exists pipeline.readers; drop view if exists pipeline.receivable;
drop function if exists pipeline.create_consumer(
    text, boolean, text, text[], text[], text, text[], interval, integer, integer);
drop function if exists pipeline.move_up(public.consumer_records[]);
drop function if exists pipeline.require_read_committed(pipeline.consumers);
drop function if exists pipeline.retry_in_line(pipeline.consumers, bigint[]);
delete from pipeline.installed_functions;
drop trigger consumers_keep_collapse on pipeline.consumers;
drop function pipeline.keep_collapse();
alter table pipeline.consumers drop column collapse;
update public.consumer_records set unkeyed = -unkeyed where unkeyed < 0;
drop index public.consumer_records_blocked_idx, public.consumer_records_left_idx;
alter table public.consumer_records drop column left_pk, drop column is_alone,
    add constraint consumer_records_state_check
        check (state in ('available', 'delivered', 'pending_redelivery', 'dead'));
comment on column public.consumer_records.unkeyed is 'seq if each event is a separate item, else 0.';
comment on column public.consumer_records.state is null;
comment on column pipeline.consumer_progress.consumer_id is null;
comment on table pipeline.consumer_touches is
    'Changes and items that wait because an open transaction of a client has locked an item. The shuffler checks'
    ' them again until it ends.';
"""


def upgrade() -> None:
    """Add the columns and the indexes, which are empty."""
    op.execute(EVERY_CHANGE)


def downgrade() -> None:
    """Refused while there is a consumer that does not collapse: its items would be lost."""
    op.execute(COLLAPSED)
