-- What the functions for users are made of. Nobody but them may call these.
-- Items that are held already are changed by `insert … on conflict do update`: each is found by its key, where a join could
-- be planned as a scan of the whole queue, of which statistics are always out of date.

create function pipeline.matches(tables text[], schema_name text, table_name text) returns boolean
language sql immutable parallel safe
as $$
    -- Patterns like 'public.*'; none match everything.
    select cardinality(tables) = 0 or exists (
        select from unnest(tables) as pattern
        where schema_name || '.' || table_name like
            replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'))
$$;

create function pipeline.consumer_of(consumer text, kind text default null) returns pipeline.consumers
language plpgsql stable set search_path = ''
as $$
#variable_conflict use_column
declare
    found_one pipeline.consumers;
begin
    select * into found_one from pipeline.consumers c where c.name = consumer_of.consumer;
    if not found then
        raise undefined_object using message = format('there is no consumer %L', consumer),
            hint = 'Create it: select pipeline.create_consumer(name).';
    end if;
    if found_one.kind <> consumer_of.kind then
        raise wrong_object_type using message = format('consumer %L is of kind %s; this is for kind %s',
            consumer, found_one.kind, consumer_of.kind);
    end if;
    return found_one;
end $$;

create function pipeline.log_head() returns bigint
language sql stable set search_path = ''
as $$
    select coalesce(max(seq), 0) from pipeline.events
$$;

create function pipeline.log_floor() returns bigint
language sql stable set search_path = ''
as $$
    -- Every event after this seq is kept: what retention has left, which may begin inside of a partition.
    select greatest(
        coalesce(min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint) - 1, 0),
        coalesce(max((
            select r.dropped_below - 1
            from pipeline.retention r
            join pg_class t on t.oid = d.refobjid
            join pg_namespace n on n.oid = t.relnamespace
            where r.events_table = n.nspname || '.' || t.relname
        )), 0))
    from pg_rewrite w
    join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
        and d.refobjid <> w.ev_class
    left join pg_inherits i on i.inhparent = d.refobjid and not i.inhdetachpending
    left join pg_class c on c.oid = i.inhrelid
    where w.ev_class = 'pipeline.events'::regclass and d.refobjsubid = 1
$$;

create function pipeline.start_seq(start text) returns bigint
language plpgsql stable set search_path = ''
as $$
declare
    head bigint := pipeline.log_head();
    lowest bigint := pipeline.log_floor();
    asked bigint;
begin
    if start = 'now' then
        return greatest(head, lowest);
    elsif start = 'beginning' then
        return lowest;
    elsif start is null or start !~ '^[0-9]{1,18}$' then
        raise invalid_parameter_value using message = format('start is %L', start),
            hint = 'Give ''now'', ''beginning'', or a seq to begin after.';
    end if;
    asked := start::bigint;
    if asked > greatest(head, lowest) then
        raise invalid_parameter_value using
            message = format('start %s is beyond the newest event, which is %s', asked, head);
    elsif asked < lowest then
        raise numeric_value_out_of_range using
            message = format('events up to seq %s are no longer kept, so nobody can begin after %s', lowest, asked),
            hint = format('Begin after %s, or at ''beginning'': what is still there.', lowest);
    end if;
    return asked;
end $$;

create function pipeline.wake_consumer(consumer text) returns void
language sql set search_path = ''
as $$
    select pg_notify('pipeline_consumers', consumer)
$$;

create function pipeline.bury(items public.consumer_records[]) returns void
language sql set search_path = ''
as $$
    -- These become dead letters, with the event, which the log may lose.
    insert into public.consumer_records as r
    select i.* from unnest(items) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'dead', ack_id = null, visible_at = null, delivered_group = null,
        event = coalesce(r.event, (
            select to_jsonb(e) from pipeline.events e where e.seq = r.seq
            order by (e.source_table_oid = r.source_table_oid and e.record_pk = r.record_pk) desc limit 1))
$$;

create function pipeline.release_expired(consumer pipeline.consumers) returns void
language plpgsql set search_path = ''
as $$
declare
    expired public.consumer_records[];
    spent public.consumer_records[];
begin
    select array_agg(r) into expired from (
        select * from public.consumer_records r
        where r.consumer_id = consumer.id and r.visible_at <= clock_timestamp()
            and r.state in ('delivered', 'pending_redelivery')
        order by r.visible_at limit 1000
        for update skip locked) r;
    if expired is null then
        return;
    end if;
    select array_agg(i) into spent from unnest(expired) i
    where i.state = 'delivered' and i.deliveries >= consumer.max_deliveries;
    insert into public.consumer_records as r
    select i.* from unnest(expired) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'available', ack_id = null, visible_at = null, delivered_group = null,
        deliveries = case when r.state = 'pending_redelivery' then 0 else r.deliveries end;
    if spent is not null then
        perform pipeline.bury(spent);
    end if;
end $$;
