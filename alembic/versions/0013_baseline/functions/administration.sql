-- Consumers come, stop, begin anew and go. These may wait for the shuffler; it never waits for them.

create function pipeline.check_consumer(made pipeline.consumers) returns void
language plpgsql immutable set search_path = ''
as $$
declare
    wrong text := case
        when made.name is null or made.name !~ '^[A-Za-z0-9_.-]{1,63}$' then format(
            'a consumer cannot be named %L: give 1 to 63 of the letters A-Z a-z, digits, _ . and -', made.name)
        when made.kind is null or made.kind not in ('records', 'cursor') then format(
            'kind is %L: give records or cursor', made.kind)
        when made.visibility is null or made.visibility <= interval '0' then 'visibility must be longer than 0'
        when made.max_deliveries < 1 then 'max_deliveries must be at least 1, or null for no limit'
        when made.max_unacknowledged < 1 then 'max_unacknowledged must be at least 1, or null for no limit'
        when made.kind = 'cursor' and (made.group_by is not null or made.max_deliveries is not null
            or made.max_unacknowledged is not null) then
            'group_by, max_deliveries and max_unacknowledged are for consumers of kind records'
        when exists (select from unnest(made.tables) t where t is null or t !~ '[.*]') then
            'tables takes patterns like public.orders or shop.*: each with its schema'
        when exists (select from unnest(made.actions) a where a is null
            or a not in ('insert', 'update', 'delete', 'truncate', 'read', 'message')) then
            'actions takes insert, update, delete, truncate, read and message'
        when exists (select from unnest(made.group_by) c where c is null) then 'group_by takes names of columns'
    end;
begin
    if wrong is not null then
        raise invalid_parameter_value using message = wrong;
    end if;
end $$;

create function pipeline.create_consumer(
    name text, kind text default 'records', tables text[] default '{}', actions text[] default '{}',
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
    made.kind := create_consumer.kind;
    made.tables := coalesce(create_consumer.tables, '{}');
    made.actions := coalesce(create_consumer.actions, '{}');
    made.group_by := nullif(create_consumer.group_by, '{}');
    made.visibility := create_consumer.visibility;
    made.max_deliveries := create_consumer.max_deliveries;
    made.max_unacknowledged := create_consumer.max_unacknowledged;
    perform pipeline.check_consumer(made);
    made.position := pipeline.start_seq(start);
    insert into pipeline.consumers as c (
        name, kind, tables, actions, group_by, visibility, max_deliveries, max_unacknowledged, position)
    values (made.name, made.kind, made.tables, made.actions, made.group_by, made.visibility, made.max_deliveries,
        made.max_unacknowledged, made.position)
    returning c.* into made;
    if made.kind = 'records' then
        insert into pipeline.consumer_progress (consumer_id, folded_seq) values (made.id, made.position);
    end if;
    return made;
exception when unique_violation then
    raise duplicate_object using message = format('there is a consumer %L already', create_consumer.name),
        hint = 'Take another name, or drop it: select pipeline.drop_consumer(name).';
end $$;

create function pipeline.drop_consumer(name text) returns pipeline.consumers
language plpgsql security definer set search_path = ''
as $$
declare
    gone pipeline.consumers := pipeline.consumer_of(name);
begin
    delete from pipeline.consumer_progress p where p.consumer_id = gone.id;
    delete from public.consumer_records r where r.consumer_id = gone.id;
    delete from pipeline.consumer_touches t where t.consumer_id = gone.id;
    delete from pipeline.consumers c where c.id = gone.id;
    perform pipeline.wake_consumer(gone.name);
    return gone;
end $$;

create function pipeline.set_consumer_state(consumer text, state text) returns pipeline.consumers
language plpgsql set search_path = ''
as $$
#variable_conflict use_column
declare
    changed pipeline.consumers := pipeline.consumer_of(consumer);
begin
    update pipeline.consumers c set state = set_consumer_state.state, updated_at = clock_timestamp()
    where c.id = changed.id
    returning c.* into changed;
    perform pipeline.wake_consumer(changed.name);
    return changed;
end $$;

create function pipeline.pause_consumer(name text) returns pipeline.consumers
language sql security definer set search_path = ''
as $$
    select pipeline.set_consumer_state(name, 'paused')
$$;

create function pipeline.resume_consumer(name text) returns pipeline.consumers
language sql security definer set search_path = ''
as $$
    select pipeline.set_consumer_state(name, 'active')
$$;

create function pipeline.reset_consumer(name text, start text default 'beginning') returns pipeline.consumers
language plpgsql security definer set search_path = ''
as $$
#variable_conflict use_column
declare
    changed pipeline.consumers := pipeline.consumer_of(reset_consumer.name);
begin
    -- Held until the end, so that the shuffler leaves this consumer alone meanwhile.
    perform from pipeline.consumer_progress p where p.consumer_id = changed.id for update;
    delete from public.consumer_records r where r.consumer_id = changed.id;
    delete from pipeline.consumer_touches t where t.consumer_id = changed.id;
    update pipeline.consumers c
    set position = pipeline.start_seq(start), reader = null, reader_session = null, reader_since = null,
        updated_at = clock_timestamp()
    where c.id = changed.id
    returning c.* into changed;
    update pipeline.consumer_progress p set folded_seq = changed.position where p.consumer_id = changed.id;
    perform pipeline.wake_consumer(changed.name);
    return changed;
end $$;
