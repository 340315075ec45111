"""Consumers of every events table: which one each reads."""

from __future__ import annotations

from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None
additive = True

OF_TABLES = """
alter table pipeline.consumers add column events_table text;
comment on column pipeline.consumers.events_table is
    'The events table that it reads, as schema.table; null: the default one. It never changes.';
comment on column pipeline.consumer_progress.consumer_id is
    'The value of pipeline.progress_id, so that servers of earlier versions find only consumers that they can serve.';
create function pipeline.refuse_unaware_reader() returns trigger language plpgsql set search_path = ''
as $$
begin
    if current_setting('pipeline.reads_events_tables', true) is distinct from 'on' then
        raise object_in_use using
            message = 'consumer ' || quote_literal(old.name) || ' reads ' || old.events_table
                || ', and a server of a version before would read the default table',
            hint = 'Connect to a server of this version.';
    end if;
    return new;
end $$;
revoke execute on function pipeline.refuse_unaware_reader from public;
create trigger consumers_refuse_unaware before update of reader_session on pipeline.consumers for each row
    when (old.events_table is not null and new.reader_session is not null)
    execute function pipeline.refuse_unaware_reader();
"""
OF_ONE_TABLE = """
do $$
begin
    if exists (select from pipeline.consumers where events_table is not null) then
        raise exception using message = 'consumers of other events tables, which the version before does not know: '
            || (select string_agg(name, ', ' order by name) from pipeline.consumers where events_table is not null),
            hint = 'Drop them first: `pipeline consumers delete NAME`.';
    end if;
end $$;
drop view if exists pipeline.readers;
drop function if exists pipeline.create_consumer(
    text, regclass, boolean, text, text[], text[], text, text[], interval, integer, integer);
drop function if exists pipeline.with_events(pipeline.consumers, public.consumer_records[]);
drop function if exists pipeline.event_of(public.consumer_records);
drop function if exists pipeline.start_seq(text, text);
drop function if exists pipeline.progress_id(pipeline.consumers);
drop function if exists pipeline.passed_upto(pipeline.consumers);
drop function if exists pipeline.inserted_at(text, bigint);
drop function if exists pipeline.require_events_table(pipeline.consumers);
drop function if exists pipeline.find_events_table(text);
drop function if exists pipeline.name_of_events_table(regclass);
drop function if exists pipeline.log_head(text);
drop function if exists pipeline.log_floor(text);
drop function if exists pipeline.events_relation(text);
delete from pipeline.installed_functions;
drop trigger consumers_refuse_unaware on pipeline.consumers;
drop function pipeline.refuse_unaware_reader();
alter table pipeline.consumers drop column events_table;
comment on column pipeline.consumer_progress.consumer_id is
    'The value of pipeline.progress_id, so that servers of earlier versions find only consumers that they can serve.';
"""


def upgrade() -> None:
    """All that are there read the default table."""
    op.execute(OF_TABLES)


def downgrade() -> None:
    """Refused while there is a consumer of another table: its place would be lost."""
    op.execute(OF_ONE_TABLE)
