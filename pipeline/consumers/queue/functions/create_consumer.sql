-- Create a consumer. Like every function that changes consumers it may wait for the shuffler; the shuffler never waits.
-- `events_table`: the events table that the consumer reads; null: the default one.
create or replace function pipeline.create_consumer(
    name text, events_table regclass, collapse boolean default true, kind text default 'records', tables text[] default '{}', actions text[] default '{}',
    start text default 'now', group_by text[] default null, visibility interval default '30 seconds',
    max_deliveries integer default null, max_unacknowledged integer default null
) returns pipeline.consumers
language plpgsql security definer set search_path = ''
as $$
#variable_conflict use_column
declare
    made pipeline.consumers;
begin
    made.name := create_consumer.name;
    made.collapse := create_consumer.collapse;
    made.kind := create_consumer.kind;
    made.tables := coalesce(create_consumer.tables, '{}');
    made.actions := coalesce(create_consumer.actions, '{}');
    made.group_by := nullif(create_consumer.group_by, '{}');
    made.visibility := create_consumer.visibility;
    made.max_deliveries := create_consumer.max_deliveries;
    made.max_unacknowledged := create_consumer.max_unacknowledged;
    perform pipeline.check_consumer(made);
    made.events_table := pipeline.name_of_events_table(create_consumer.events_table);
    made.position := pipeline.start_seq(start, made.events_table);
    insert into pipeline.consumers as c (name, events_table, collapse, kind, tables, actions, group_by, visibility,
        max_deliveries, max_unacknowledged, position)
    values (made.name, made.events_table, made.collapse, made.kind, made.tables, made.actions, made.group_by,
        made.visibility, made.max_deliveries, made.max_unacknowledged, made.position)
    returning c.* into made;
    if made.kind = 'records' then
        insert into pipeline.consumer_progress (consumer_id, folded_seq) values (pipeline.progress_id(made), made.position);
    end if;
    return made;
exception when unique_violation then
    raise duplicate_object using message = format('there is a consumer %L already', create_consumer.name),
        hint = 'Take another name, or drop it: select pipeline.drop_consumer(name).';
end $$;
revoke execute on function pipeline.create_consumer(
    text, regclass, boolean, text, text[], text[], text, text[], interval, integer, integer) from public;

-- Create a consumer of the default events table: the earlier signatures, which older clients call.
create or replace function pipeline.create_consumer(
    name text, collapse boolean, kind text default 'records', tables text[] default '{}', actions text[] default '{}',
    start text default 'now', group_by text[] default null, visibility interval default '30 seconds',
    max_deliveries integer default null, max_unacknowledged integer default null
) returns pipeline.consumers
language sql security definer set search_path = ''
as $$
    select * from pipeline.create_consumer(
        create_consumer.name, null::regclass, create_consumer.collapse, create_consumer.kind, create_consumer.tables,
        create_consumer.actions, create_consumer.start, create_consumer.group_by, create_consumer.visibility,
        create_consumer.max_deliveries, create_consumer.max_unacknowledged)
$$;
revoke execute on function pipeline.create_consumer(
    text, boolean, text, text[], text[], text, text[], interval, integer, integer) from public;

create or replace function pipeline.create_consumer(
    name text, kind text default 'records', tables text[] default '{}', actions text[] default '{}',
    start text default 'now', group_by text[] default null, visibility interval default '30 seconds',
    max_deliveries integer default null, max_unacknowledged integer default null
) returns pipeline.consumers
language sql security definer set search_path = ''
as $$
    select * from pipeline.create_consumer(
        create_consumer.name, true, create_consumer.kind, create_consumer.tables, create_consumer.actions,
        create_consumer.start, create_consumer.group_by, create_consumer.visibility, create_consumer.max_deliveries,
        create_consumer.max_unacknowledged)
$$;
revoke execute on function pipeline.create_consumer(
    text, text, text[], text[], text, text[], interval, integer, integer) from public;
