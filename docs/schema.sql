-- A migrated pipeline database, as pg_dump prints it. Generated: make generated

CREATE SCHEMA pipeline;

CREATE FUNCTION pipeline.ack(consumer text, ack_ids uuid[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_sort TO 'off'
    AS $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    gone integer;
    touched integer;
    emptied boolean;
    settled public.consumer_records[];
begin
    if not me.collapse then
        perform pipeline.require_read_committed(me);
        with gone as (
            delete from public.consumer_records r
            where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id
            returning r)
        select array_agg(g.r), bool_or((g.r).action = 'truncate') into settled, emptied from gone g;
        touched := pipeline.move_up(settled);  -- before the condition, which Postgres may evaluate without it
        if touched > 0 or emptied or settled is not null and (me.max_unacknowledged is not null or exists (
            select from public.consumer_records r
            where r.consumer_id = me.id and r.action = 'truncate' and r.state <> 'dead'))
        then
            perform pipeline.wake_consumer(me.name);
        end if;
        if settled is not null and current_setting('synchronous_commit') = 'off' then
            perform pipeline.commit_durably();
        end if;
        return coalesce(cardinality(settled), 0);
    end if;
    with settled as (
        delete from public.consumer_records r
        where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id
            and r.state = 'delivered'
        returning r.action)
    -- Items behind a truncate waited for it, so clients are woken.
    select count(*), bool_or(s.action = 'truncate') into gone, emptied from settled s;
    touched := 0;
    if gone < cardinality(ack.ack_ids) then
        update public.consumer_records r
        set state = 'available', ack_id = null, visible_at = null, delivered_group = null, deliveries = 0,
            queued_seq = r.seq
        where r.ack_id is not null and r.ack_id = any (ack.ack_ids) and r.consumer_id + 0 = me.id
            and r.state = 'pending_redelivery';
        get diagnostics touched = row_count;
    end if;
    if touched > 0 or emptied or gone > 0 and (me.group_by is not null or me.max_unacknowledged is not null or exists (
        select from public.consumer_records r
        where r.consumer_id = me.id and r.action = 'truncate' and r.state <> 'dead'))
    then
        perform pipeline.wake_consumer(me.name);
    end if;
    if gone + touched > 0 and current_setting('synchronous_commit') = 'off' then
        perform pipeline.commit_durably();
    end if;
    return gone + touched;
end $$;

CREATE FUNCTION pipeline.advance(consumer text, seq bigint, session text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
#variable_conflict use_column
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'cursor');
    head bigint;
    reached bigint;
begin
    if advance.seq is null or advance.seq < 0 then
        raise invalid_parameter_value using message = 'seq must be a position in the log';
    end if;
    if advance.seq > me.position then
        head := pipeline.log_head(me.events_table);
        if advance.seq > head and advance.seq > me.position then
            raise invalid_parameter_value using
                message = format('seq %s is beyond the newest event, which is %s', advance.seq, head);
        end if;
    end if;
    update pipeline.consumers c
    set position = greatest(c.position, pipeline.before_jump(me.events_table, advance.seq)), updated_at = clock_timestamp()
    where c.id = me.id and (advance.session is null or c.reader_session = advance.session)
    returning c.position into reached;
    if not found then
        raise object_in_use using
            message = format('consumer %L is not read by this session but by %s', me.name,
                coalesce(me.reader, 'no session')),
            hint = 'Connect again.';
    end if;
    return reached;
end $$;

CREATE FUNCTION pipeline.before_jump(events_table text, seq bigint) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select coalesce((
        select min(j.before) from pipeline.seq_jumps j
        where j.events_table = coalesce(before_jump.events_table, pipeline.default_events_table())
            and j.before < before_jump.seq and before_jump.seq < j.after), before_jump.seq)
$$;

COMMENT ON FUNCTION pipeline.before_jump(events_table text, seq bigint) IS 'This seq; or if an events table (null: the default one) has skipped it by a jump, the newest seq before the jump.';

CREATE TABLE public.consumer_records (
    consumer_id integer NOT NULL,
    source_table_oid bigint NOT NULL,
    record_pk text NOT NULL COLLATE pg_catalog."C",
    unkeyed bigint DEFAULT 0 NOT NULL,
    seq bigint NOT NULL,
    queued_seq bigint NOT NULL,
    commit_lsn bigint,
    commit_idx integer,
    action text NOT NULL,
    record jsonb,
    event jsonb,
    group_id text DEFAULT ''::text NOT NULL,
    state text DEFAULT 'available'::text NOT NULL,
    ack_id uuid,
    visible_at timestamp with time zone,
    deliveries integer DEFAULT 0 NOT NULL,
    delivered_seq bigint,
    delivered_group text,
    left_pk text COLLATE pg_catalog."C",
    is_alone boolean
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');

COMMENT ON TABLE public.consumer_records IS 'Items that a records consumer has not acknowledged: one per row of a table, its last change; refers to the log.';

COMMENT ON COLUMN public.consumer_records.unkeyed IS 'seq if each event is a separate item, else 0; negative in a dead letter, behind which no item waits.';

COMMENT ON COLUMN public.consumer_records.seq IS 'The event that is its last change.';

COMMENT ON COLUMN public.consumer_records.queued_seq IS 'Its place in the queue: the first change since its delivery.';

COMMENT ON COLUMN public.consumer_records.record IS 'Set only for a key that the row has left, because its record is not that of the event.';

COMMENT ON COLUMN public.consumer_records.event IS 'The complete event of a dead letter, which may outlive the log.';

COMMENT ON COLUMN public.consumer_records.group_id IS 'Empty when the consumer has no group_by.';

COMMENT ON COLUMN public.consumer_records.state IS 'available, blocked (behind an earlier item of its row or group), delivered, pending_redelivery or dead.';

COMMENT ON COLUMN public.consumer_records.visible_at IS 'When a delivery expires, or the delay of a nack ends; null if the item waits for nothing.';

COMMENT ON COLUMN public.consumer_records.delivered_seq IS 'The event that was last delivered.';

COMMENT ON COLUMN public.consumer_records.delivered_group IS 'The group of the item when it was delivered.';

COMMENT ON COLUMN public.consumer_records.left_pk IS 'If each event is an item: the previous key of the row, if the event changed it. The item waits behind items of that key, too.';

COMMENT ON COLUMN public.consumer_records.is_alone IS 'If each event is an item: true if the event belongs to no row, so the item waits behind no other. Null: the consumer collapses.';

CREATE FUNCTION pipeline.bury(items public.consumer_records[]) RETURNS void
    LANGUAGE sql
    SET search_path TO ''
    AS $$
    -- Each dead letter keeps its event, because retention may drop the event from the log.
    insert into public.consumer_records as r
    select i.* from unnest(items) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'dead', unkeyed = -abs(r.unkeyed), ack_id = null, visible_at = null, delivered_group = null,
        event = coalesce(r.event, pipeline.event_of(r))
$$;

CREATE TABLE pipeline.consumers (
    id integer NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    tables text[] DEFAULT '{}'::text[] NOT NULL,
    actions text[] DEFAULT '{}'::text[] NOT NULL,
    state text DEFAULT 'active'::text NOT NULL,
    group_by text[],
    visibility interval DEFAULT '00:00:30'::interval NOT NULL,
    max_deliveries integer,
    max_unacknowledged integer,
    "position" bigint NOT NULL,
    reader text,
    reader_session text,
    reader_since timestamp with time zone,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    collapse boolean DEFAULT true,
    events_table text,
    CONSTRAINT consumers_kind_check CHECK ((kind = ANY (ARRAY['records'::text, 'cursor'::text]))),
    CONSTRAINT consumers_max_deliveries_check CHECK ((max_deliveries >= 1)),
    CONSTRAINT consumers_max_unacknowledged_check CHECK ((max_unacknowledged >= 1)),
    CONSTRAINT consumers_name_check CHECK ((name ~ '^[A-Za-z0-9_.-]{1,63}$'::text)),
    CONSTRAINT consumers_state_check CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text]))),
    CONSTRAINT consumers_visibility_check CHECK ((visibility > '00:00:00'::interval))
);

COMMENT ON TABLE pipeline.consumers IS 'Named readers of the log. Change them only with the functions.';

COMMENT ON COLUMN pipeline.consumers.tables IS 'Patterns schema.table in which * matches anything; empty: all.';

COMMENT ON COLUMN pipeline.consumers.group_by IS 'Columns of record that make the group; null: each row is a group.';

COMMENT ON COLUMN pipeline.consumers."position" IS 'cursor: the last seq acknowledged; records: the seq after which it began.';

COMMENT ON COLUMN pipeline.consumers.reader IS 'cursor: the client that reads now.';

COMMENT ON COLUMN pipeline.consumers.collapse IS 'records: true if an item is a row with its last change, false if each event is an item. It never changes.';

COMMENT ON COLUMN pipeline.consumers.events_table IS 'The events table that it reads, as schema.table; null: the default one. It never changes.';

CREATE FUNCTION pipeline.check_consumer(made pipeline.consumers) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO ''
    AS $_$
declare
    wrong text := case
        when made.name is null or made.name !~ '^[A-Za-z0-9_.-]{1,63}$' then format(
            'a consumer cannot be named %L: give 1 to 63 of the letters A-Z a-z, digits, _ . and -', made.name)
        when made.kind is null or made.kind not in ('records', 'cursor') then format(
            'kind is %L: give records or cursor', made.kind)
        when made.collapse is null then 'collapse must be true or false'
        when not made.collapse and made.kind = 'cursor' then
            'collapse is for consumers of kind records: a cursor reads each event'
        when made.visibility is null or made.visibility <= interval '0' then 'visibility must be longer than 0'
        when made.max_deliveries < 1 then 'max_deliveries must be at least 1, or null for no limit'
        when made.max_unacknowledged < 1 then 'max_unacknowledged must be at least 1, or null for no limit'
        when made.kind = 'cursor' and (made.group_by is not null or made.max_deliveries is not null
            or made.max_unacknowledged is not null) then
            'group_by, max_deliveries and max_unacknowledged are for consumers of kind records'
        when exists (select from unnest(made.tables) t where t is null or t !~ '[.*]') then
            'tables takes patterns like public.orders or shop.*: each with its schema'
        when exists (select from unnest(made.tables) t where length(t) - length(replace(t, '*', '')) > 32) then
            'tables takes patterns with at most 32 stars each: one star stands for any text, also for several parts'
        when exists (select from unnest(made.actions) a where a is null
            or a not in ('insert', 'update', 'delete', 'truncate', 'read', 'message')) then
            'actions takes insert, update, delete, truncate, read and message'
        when exists (select from unnest(made.group_by) c where c is null) then 'group_by takes names of columns'
    end;
begin
    if wrong is not null then
        raise invalid_parameter_value using message = wrong;
    end if;
end $_$;

CREATE FUNCTION pipeline.commit_durably() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;

CREATE FUNCTION pipeline.consumer_of(consumer text, kind text DEFAULT NULL::text) RETURNS pipeline.consumers
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION pipeline.create_consumer(name text, kind text DEFAULT 'records'::text, tables text[] DEFAULT '{}'::text[], actions text[] DEFAULT '{}'::text[], start text DEFAULT 'now'::text, group_by text[] DEFAULT NULL::text[], visibility interval DEFAULT '00:00:30'::interval, max_deliveries integer DEFAULT NULL::integer, max_unacknowledged integer DEFAULT NULL::integer) RETURNS pipeline.consumers
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select * from pipeline.create_consumer(
        create_consumer.name, true, create_consumer.kind, create_consumer.tables, create_consumer.actions,
        create_consumer.start, create_consumer.group_by, create_consumer.visibility, create_consumer.max_deliveries,
        create_consumer.max_unacknowledged)
$$;

CREATE FUNCTION pipeline.create_consumer(name text, collapse boolean, kind text DEFAULT 'records'::text, tables text[] DEFAULT '{}'::text[], actions text[] DEFAULT '{}'::text[], start text DEFAULT 'now'::text, group_by text[] DEFAULT NULL::text[], visibility interval DEFAULT '00:00:30'::interval, max_deliveries integer DEFAULT NULL::integer, max_unacknowledged integer DEFAULT NULL::integer) RETURNS pipeline.consumers
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select * from pipeline.create_consumer(
        create_consumer.name, null::regclass, create_consumer.collapse, create_consumer.kind, create_consumer.tables,
        create_consumer.actions, create_consumer.start, create_consumer.group_by, create_consumer.visibility,
        create_consumer.max_deliveries, create_consumer.max_unacknowledged)
$$;

CREATE FUNCTION pipeline.create_consumer(name text, events_table regclass, collapse boolean DEFAULT true, kind text DEFAULT 'records'::text, tables text[] DEFAULT '{}'::text[], actions text[] DEFAULT '{}'::text[], start text DEFAULT 'now'::text, group_by text[] DEFAULT NULL::text[], visibility interval DEFAULT '00:00:30'::interval, max_deliveries integer DEFAULT NULL::integer, max_unacknowledged integer DEFAULT NULL::integer) RETURNS pipeline.consumers
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION pipeline.dead_records(consumer text) RETURNS TABLE(seq bigint, commit_lsn bigint, commit_idx integer, source_table_oid bigint, source_table_schema text, source_table_name text, record_pk text, action text, record jsonb, changes jsonb, exact jsonb, unchanged_columns text[], transaction_annotations jsonb, metadata jsonb, committed_at timestamp with time zone, deliveries integer)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
#variable_conflict use_column
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
begin
    return query
        select r.seq, r.commit_lsn, r.commit_idx, r.source_table_oid, e.source_table_schema, e.source_table_name,
            r.record_pk, r.action, coalesce(r.record, e.record),
            case when r.record is null then e.changes end, case when r.record is null then e.exact end,
            case when r.record is null then e.unchanged_columns end, e.transaction_annotations, e.metadata,
            e.committed_at, r.deliveries
        from public.consumer_records r
        cross join lateral jsonb_populate_record(null::pipeline.events, r.event) e
        where r.consumer_id = me.id and r.state = 'dead'
        order by r.seq, r.record is null, r.record_pk;
end $$;

CREATE FUNCTION pipeline.default_events_table() RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO ''
    AS $$
    select n.nspname || '.' || t.relname
    from pg_catalog.pg_rewrite w
    join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid <> w.ev_class
    join pg_catalog.pg_class t on t.oid = d.refobjid
    join pg_catalog.pg_namespace n on n.oid = t.relnamespace
    where w.ev_class = 'pipeline.events'::regclass
    limit 1
$$;

CREATE FUNCTION pipeline.discard_dead(consumer text, seqs bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    discarded integer;
begin
    delete from public.consumer_records r
    where r.consumer_id = me.id and r.state = 'dead'
        and (discard_dead.seqs is null or r.seq = any (discard_dead.seqs));
    get diagnostics discarded = row_count;
    return discarded;
end $$;

CREATE FUNCTION pipeline.drop_consumer(name text) RETURNS pipeline.consumers
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    gone pipeline.consumers;
begin
    select * into gone from pipeline.consumers c where c.name = drop_consumer.name;
    delete from pipeline.consumer_progress p where p.consumer_id in (gone.id, -gone.id, 1000000000 + gone.id);  -- see progress_id
    delete from public.consumer_records r where r.consumer_id = gone.id;
    delete from pipeline.consumer_touches t where t.consumer_id = gone.id;
    delete from pipeline.consumers c where c.id = gone.id;
    if not found then  -- or another session has dropped it by now
        raise undefined_object using message = format('there is no consumer %L', drop_consumer.name),
            hint = 'See all: select name from pipeline.consumers.';
    end if;
    delete from pipeline.walstream_sessions where gone.name = 'walstream';  -- no hold of the dropped consumer remains
    perform pipeline.wake_consumer(gone.name);
    return gone;
end $$;

CREATE FUNCTION pipeline.event_of(item public.consumer_records) RETURNS jsonb
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $_$
declare
    relation text := pipeline.events_relation(
        (select c.events_table from pipeline.consumers c where c.id = item.consumer_id));
    found_one jsonb;
begin
    if to_regclass(relation) is not null then
        execute format($query$
            select to_jsonb(e) from %s e where e.seq = $1
            order by (e.source_table_oid = $2 and e.record_pk = $3) desc limit 1$query$, relation)
        into found_one using item.seq, item.source_table_oid, item.record_pk;
    end if;
    return found_one;
end $_$;

CREATE FUNCTION pipeline.events_relation(events_table text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when events_table is null then 'pipeline.events'
        else format('%I.%I', split_part(events_table, '.', 1), split_part(events_table, '.', 2)) end
$$;

CREATE FUNCTION pipeline.extend(consumer text, ack_ids uuid[], visibility interval) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_sort TO 'off'
    AS $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    extended integer;
begin
    if extend.visibility is null or extend.visibility <= interval '0' then
        raise invalid_parameter_value using message = 'visibility must be longer than 0';
    end if;
    update public.consumer_records r set visible_at = clock_timestamp() + extend.visibility
    where r.ack_id is not null and r.ack_id = any (extend.ack_ids) and r.consumer_id + 0 = me.id;
    get diagnostics extended = row_count;
    return extended;
end $$;

CREATE FUNCTION pipeline.find_events_table(events_table text) RETURNS regclass
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $_$
declare
    found_one regclass := case when find_events_table.events_table ~ '^[^."]+[.][^."]+$' then
        to_regclass(pipeline.events_relation(find_events_table.events_table)) end;
begin
    if find_events_table.events_table is not null and found_one is null then
        raise invalid_parameter_value using
            message = format('there is no events table %s', find_events_table.events_table),
            hint = format('Name one that a route sends changes to, schema.table, as the server makes it; there are: %s.', (
                select coalesce(string_agg(distinct t.name, ', '), 'none yet') from pipeline.events_tables t));
    end if;
    return found_one;
end $_$;

CREATE FUNCTION pipeline.give_back(consumer text, ack_ids uuid[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_sort TO 'off'
    AS $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    given integer;
begin
    update public.consumer_records r
    set state = 'available', ack_id = null, visible_at = null, delivered_group = null,
        deliveries = case when r.state = 'delivered' then greatest(r.deliveries - 1, 0) else 0 end
    where r.ack_id is not null and r.ack_id = any (give_back.ack_ids) and r.consumer_id + 0 = me.id;
    get diagnostics given = row_count;
    if given > 0 then
        perform pipeline.wake_consumer(me.name);
    end if;
    return given;
end $$;

CREATE FUNCTION pipeline.hand_out(consumer pipeline.consumers, upto integer, visibility interval) RETURNS SETOF public.consumer_records
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
declare
    picked tid[];
    beginning bytea := substr(uuid_send(gen_random_uuid()), 1, 12);
begin
    select array_agg(p.row_id) into picked from (
        select r.row_id from pipeline.receivable r
        where r.consumer_id = hand_out.consumer.id
        order by r.queued_seq
        limit upto
        for update skip locked) p;
    -- The conditions are checked again on the locked rows. If the shuffler has changed an item since the first
    -- statement began, the item may be behind a truncate or in a group that the first statement could not see.
    return query
        update public.consumer_records r
        -- The ack_ids of one call are next to each other, because their index is then faster than with random ones.
        set state = 'delivered', ack_id = encode(beginning || int4send(p.number::integer), 'hex')::uuid,
            visible_at = clock_timestamp() + hand_out.visibility, deliveries = r.deliveries + 1,
            delivered_seq = r.seq, delivered_group = nullif(r.group_id, '')
        from unnest(picked) with ordinality p (row_id, number)
        where r.ctid = p.row_id and r.state = 'available'
            and not exists (
                select from public.consumer_records t
                where t.consumer_id = r.consumer_id and t.source_table_oid = r.source_table_oid
                    and t.action = 'truncate' and t.state <> 'dead' and t.seq < r.seq)
            and (r.is_alone is not null or r.group_id = '' or not exists (
                select from public.consumer_records o
                where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.group_id <> ''
                    and o.state <> 'dead' and (o.queued_seq < r.queued_seq
                        or o.state <> 'available' and o.visible_at > clock_timestamp())))
        returning r.*;
end $$;

CREATE FUNCTION pipeline.inserted_at(events_table text, from_seq bigint) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $_$
declare
    arrived timestamptz;
begin
    if to_regclass(pipeline.events_relation(events_table)) is not null then
        execute format('select e.inserted_at from %s e where e.seq >= $1 order by e.seq limit 1',
            pipeline.events_relation(events_table)) into arrived using from_seq;
    end if;
    return arrived;
end $_$;

CREATE FUNCTION pipeline.keep_collapse() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
begin
    raise object_not_in_prerequisite_state using
        message = 'collapse of consumer ' || quote_literal(old.name) || ' cannot be changed',
        hint = 'Create another consumer that begins where this one is, and drop this one.';
end $$;

CREATE FUNCTION pipeline.keep_turn() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
begin
    if exists (
        select from pipeline.adopted_tables t where t.source_id = new.source_id and t.state = 'waiting'
            and (t.last_lsn <= new.commit_lsn or new.epoch <> old.epoch)
    ) then
        raise exception 'tables with a backlog come next in the log, which this version does not know'
            using errcode = 'object_not_in_prerequisite_state',
                hint = 'Start the newer version, until `pipeline status` shows that none waits.';
    end if;
    return null;
end $$;

COMMENT ON FUNCTION pipeline.keep_turn() IS 'Stops a server of an older version from moving the log past adopted tables that wait, of which it does not know.';

CREATE FUNCTION pipeline.log_floor() RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO ''
    AS $$
    select pipeline.log_floor(null)
$$;

CREATE FUNCTION pipeline.log_floor(events_table text) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO ''
    AS $$
    -- Every event after this seq is kept: retention may have deleted the first rows of the first partition.
    select pipeline.before_jump(log_floor.events_table, greatest(
        coalesce(min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint) - 1, 0),
        coalesce(max((
            select r.dropped_below - 1
            from pipeline.retention r
            join pg_class t on t.oid = log.oid
            join pg_namespace n on n.oid = t.relnamespace
            where r.events_table = n.nspname || '.' || t.relname
        )), 0)))
    from (
        select d.refobjid as oid
        from pg_rewrite w
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
            and d.refobjid <> w.ev_class
        where log_floor.events_table is null and w.ev_class = 'pipeline.events'::regclass and d.refobjsubid = 1
        union all
        select to_regclass(pipeline.events_relation(log_floor.events_table)) where log_floor.events_table is not null
    ) log
    left join pg_inherits i on i.inhparent = log.oid and not i.inhdetachpending
    left join pg_class c on c.oid = i.inhrelid
$$;

CREATE FUNCTION pipeline.log_head() RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO ''
    AS $$
    select coalesce(max(seq), 0) from pipeline.events
$$;

CREATE FUNCTION pipeline.log_head(events_table text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $$
declare
    head bigint;
begin
    if events_table is null then
        return pipeline.log_head();
    elsif to_regclass(pipeline.events_relation(events_table)) is null then
        return 0;
    end if;
    execute format('select coalesce(max(seq), 0) from %s', pipeline.events_relation(events_table)) into head;
    return head;
end $$;

CREATE FUNCTION pipeline.log_place(OUT system_identifier text, OUT timeline integer, OUT database_oid bigint, OUT table_oid bigint) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $$
begin
    database_oid := (select d.oid from pg_catalog.pg_database d where d.datname = current_database());
    table_oid := 'pipeline.identity'::regclass::oid;
    begin
        system_identifier := (select c.system_identifier from pg_catalog.pg_control_system() c);
    exception when others then
        null;
    end;
    begin
        -- pg_control_checkpoint has the timeline from before a promotion until the next checkpoint has ended.
        timeline := ('x' || left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::integer;
    exception when others then
        null;
    end;
end $$;

CREATE FUNCTION pipeline.matches(tables text[], schema_name text, table_name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    -- Patterns like 'public.*'; an empty list matches every table.
    select cardinality(tables) = 0 or exists (
        select from unnest(tables) as pattern
        where schema_name || '.' || table_name like
            replace(replace(replace(replace(pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'))
$$;

CREATE FUNCTION pipeline.move_up(gone public.consumer_records[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
declare
    next_ones public.consumer_records[];
    moved integer;
begin
    if gone is null then
        return 0;
    end if;
    -- This lock and that of retry_in_line exclude each other: the later transaction waits until the earlier one ends.
    perform pg_advisory_xact_lock_shared(714629016, (gone[1]).consumer_id);
    select array_agg(n) into next_ones from (
        select r.*
        from (
            select distinct f.queued_seq, f.source_table_oid, f.record_pk, f.unkeyed
            from unnest(gone) g
            cross join lateral (
                select first.*
                from (values (g.record_pk), (g.left_pk)) line (key)
                cross join lateral (
                    (select o.source_table_oid, o.record_pk, o.unkeyed, o.queued_seq, o.state from public.consumer_records o
                    where g.unkeyed > 0 and not g.is_alone and o.consumer_id = g.consumer_id
                        and o.source_table_oid = g.source_table_oid and o.record_pk = line.key and o.unkeyed > 0
                        and not o.is_alone
                    order by o.unkeyed limit 1)
                    union all
                    (select o.source_table_oid, o.record_pk, o.unkeyed, o.queued_seq, o.state from public.consumer_records o
                    where g.unkeyed > 0 and not g.is_alone and o.consumer_id = g.consumer_id
                        and o.source_table_oid = g.source_table_oid and o.left_pk = line.key and o.unkeyed > 0
                    order by o.unkeyed limit 1)
                ) first
                union all
                (select o.source_table_oid, o.record_pk, o.unkeyed, o.queued_seq, o.state from public.consumer_records o
                where g.group_id <> '' and o.consumer_id = g.consumer_id and o.group_id = g.group_id
                    and o.group_id <> '' and o.state <> 'dead'
                order by o.queued_seq limit 1)
            ) f
            where f.state = 'blocked'
            order by f.queued_seq, f.source_table_oid, f.record_pk
        ) found
        -- By its key alone: with a condition on the state, Postgres could decide to read all blocked items.
        cross join lateral (
            select * from public.consumer_records o
            where o.consumer_id = (gone[1]).consumer_id and o.source_table_oid = found.source_table_oid
                and o.record_pk = found.record_pk and o.unkeyed = found.unkeyed
            for no key update
        ) r) n;
    if next_ones is null then
        return 0;
    end if;
    -- This is a separate statement, so that it sees the items that other sessions settled while this session waited.
    insert into public.consumer_records as r
    select i.* from unnest(next_ones) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update set state = 'available'
    where r.state = 'blocked'
        and (r.unkeyed < 0 or r.is_alone or not exists (
            select from (values (r.record_pk), (r.left_pk)) line (key)
            cross join lateral (
                (select from public.consumer_records o
                where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid
                    and o.record_pk = line.key and o.unkeyed > 0 and o.unkeyed < r.unkeyed and not o.is_alone
                limit 1)
                union all
                (select from public.consumer_records o
                where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid
                    and o.left_pk = line.key and o.unkeyed > 0 and o.unkeyed < r.unkeyed
                limit 1)
            ) before))
        and (r.group_id = '' or not exists (
            select from public.consumer_records o
            where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.group_id <> ''
                and o.state <> 'dead' and o.queued_seq < r.queued_seq));
    get diagnostics moved = row_count;
    return moved;
end $$;

CREATE FUNCTION pipeline.nack(consumer text, ack_ids uuid[], delay interval DEFAULT NULL::interval) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_sort TO 'off'
    AS $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    held public.consumer_records[];
    spent public.consumer_records[];
begin
    if not me.collapse then
        perform pipeline.require_read_committed(me);
    end if;
    if nack.delay < interval '0' then
        raise invalid_parameter_value using message = 'delay must not be negative; null doubles it each time';
    end if;
    select array_agg(r) into held from (
        select * from public.consumer_records r
        where r.ack_id is not null and r.ack_id = any (nack.ack_ids) and r.consumer_id + 0 = me.id
        order by r.source_table_oid, r.record_pk, r.unkeyed
        for update) r;
    if held is null then
        return 0;
    end if;
    insert into public.consumer_records as r
    select i.* from unnest(held) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
    set state = 'available', ack_id = null, delivered_group = null,
        visible_at = case when r.state = 'delivered' then clock_timestamp() + coalesce(
            nack.delay, least(interval '1 second' * 2 ^ least(r.deliveries - 1, 9), interval '5 minutes')) end,
        deliveries = case when r.state = 'delivered' then r.deliveries else 0 end;
    select array_agg(i) into spent from unnest(held) i
    where i.state = 'delivered' and i.deliveries >= me.max_deliveries;
    if spent is not null then
        perform pipeline.bury(spent);
        if not me.collapse then
            perform pipeline.move_up(spent);
        end if;
    end if;
    perform pipeline.wake_consumer(me.name);
    return cardinality(held);
end $$;

CREATE FUNCTION pipeline.name_of_events_table(events_table regclass) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $$
declare
    of_table text := (
        select n.nspname || '.' || t.relname from pg_class t join pg_namespace n on n.oid = t.relnamespace
        where t.oid = name_of_events_table.events_table);
begin
    if of_table is null or exists (
        select from pg_rewrite w
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
        where w.ev_class = 'pipeline.events'::regclass and d.refobjid = name_of_events_table.events_table)
    then
        return null;
    elsif not exists (select from pipeline.events_tables t where t.name = of_table) then
        raise invalid_parameter_value using message = format('%s is no events table', of_table),
            hint = format('Name one that a route sends changes to, and start the server, which makes it; there are: %s.', (
                select coalesce(string_agg(distinct t.name, ', '), 'none yet') from pipeline.events_tables t));
    end if;
    return of_table;
end $$;

CREATE FUNCTION pipeline.next_visible(consumer text) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO ''
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_sort TO 'off'
    AS $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    is_full boolean := me.max_unacknowledged <= (
        select count(*) from (
            select from public.consumer_records r
            where r.consumer_id = me.id and r.visible_at > clock_timestamp()
                and r.state in ('delivered', 'pending_redelivery')
            order by r.visible_at limit me.max_unacknowledged) r);
begin
    if me.state = 'paused' then
        return null;
    end if;
    return (select r.visible_at from public.consumer_records r
        where r.consumer_id = me.id and r.visible_at is not null
            and (r.state in ('delivered', 'pending_redelivery')
                or is_full is not true and (r.visible_at > clock_timestamp() or exists (
                    select from pipeline.receivable v
                    where v.consumer_id = r.consumer_id and v.source_table_oid = r.source_table_oid
                        and v.record_pk = r.record_pk and v.unkeyed = r.unkeyed)))
        order by r.visible_at limit 1);
end $$;

CREATE FUNCTION pipeline.partition_truncates(events_table text, source uuid, after bigint, since bigint, tables bigint[]) RETURNS TABLE(epoch integer, root_oid bigint, leaf_oid bigint, commit_lsn bigint, commit_idx integer, seq bigint, is_whole boolean)
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path TO ''
    SET enable_nestloop TO 'off'
    AS $_$
begin
    return query execute format($query$
        with change as materialized (
            select c.root_oid, c.leaf_oid, c.epoch, c.seen_lsn, c.what,
                row_number() over (partition by c.root_oid, c.leaf_oid order by c.id) as place
            from pipeline.partition_changes c where c.source_id = $1 and c.what <> 'truncated'
        ), step as materialized (  -- the place from which on it is a leaf, or no leaf
            select c.root_oid, c.leaf_oid, -1 as epoch, -1::bigint as lsn, 0 as idx, c.what <> 'attached' as is_leaf
            from change c where c.place = 1
            union all
            select p.root_oid, p.leaf_oid, -1, -1, 0, true from pipeline.partitions p
            where p.source_id = $1 and not exists (
                select from change c where c.root_oid = p.root_oid and c.leaf_oid = p.leaf_oid)
            union all
            select r.table_oid, r.relation_oid, r.epoch, r.from_lsn, r.from_idx, true
            from pipeline.partition_looks k join pipeline.relations r
                on r.source_id = k.source_id and r.epoch = k.epoch and r.table_oid = k.root_oid
                    and r.id > k.after_relation and r.relation_oid <> r.table_oid
            where k.source_id = $1
            union all
            select c.root_oid, c.leaf_oid, c.epoch, c.seen_lsn, 0, c.what in ('attached', 'returned') from change c
        ), leaf as materialized (
            select distinct s.root_oid, s.leaf_oid from step s
            where $4 is null or s.root_oid in (
                select o.root_oid from step o where o.root_oid = any ($4) or o.leaf_oid = any ($4))
        ), last as materialized (  -- by the index, whatever the planner thinks of a table that is seldom analyzed
            select l.root_oid, l.leaf_oid, e.source_epoch as epoch, e.commit_lsn, max(e.commit_idx) as idx, max(e.seq) as seq
            from leaf l cross join lateral (
                select e.source_epoch, e.commit_lsn, e.commit_idx, e.seq from %1$s e
                where e.source_database_id = $1 and e.source_table_oid = l.leaf_oid and e.record_pk = '' and e.seq > $3
                    and e.action = 'truncate' and e.commit_lsn is not null
                offset 0
            ) e
            group by l.root_oid, l.leaf_oid, e.source_epoch, e.commit_lsn
        ), truncated as materialized (
            select l.root_oid, l.epoch, l.commit_lsn, min(l.idx) as idx from last l
            group by l.root_oid, l.epoch, l.commit_lsn having max(l.seq) > $2
        ), latest as (
            select distinct on (t.root_oid, t.epoch, t.commit_lsn, s.leaf_oid)
                t.root_oid, t.epoch, t.commit_lsn, s.leaf_oid, s.is_leaf
            from truncated t join step s
                on s.root_oid = t.root_oid and (s.epoch, s.lsn, s.idx) < (t.epoch, t.commit_lsn, t.idx)
            order by t.root_oid, t.epoch, t.commit_lsn, s.leaf_oid, s.epoch desc, s.lsn desc, s.idx desc
        ), member as materialized (
            select m.root_oid, m.epoch, m.commit_lsn, m.leaf_oid, l.idx, l.seq
            from latest m left join last l on l.root_oid = m.root_oid and l.leaf_oid = m.leaf_oid
                and l.epoch = m.epoch and l.commit_lsn = m.commit_lsn
            where m.is_leaf
        ), whole as (
            select m.root_oid, m.epoch, m.commit_lsn, bool_and(m.seq is not null) as is_whole,
                min(m.seq) as first_seq, max(m.seq) as last_seq
            from member m group by m.root_oid, m.epoch, m.commit_lsn
        ), verdict as materialized (
            select w.root_oid, w.epoch, w.commit_lsn, w.is_whole
                and not exists (  -- stored as a truncate of a partition, before an epoch began that knows only its own leaves
                    select from pipeline.partition_changes c
                    where c.source_id = $1 and c.root_oid = w.root_oid and c.what = 'truncated'
                        and c.epoch = w.epoch and c.seen_lsn = w.commit_lsn)
                and not exists (  -- rows between the truncates of one transaction may be there still
                    select from %1$s e where e.source_database_id = $1 and e.source_table_oid = w.root_oid
                        and e.seq > w.first_seq and e.seq < w.last_seq) as is_whole
            from whole w
        )
        select m.epoch, m.root_oid, m.leaf_oid, m.commit_lsn, m.idx, m.seq, v.is_whole
        from verdict v join member m on m.root_oid = v.root_oid and m.epoch = v.epoch and m.commit_lsn = v.commit_lsn
        where m.seq is not null$query$,
        pipeline.events_relation(events_table))
    using source, after, since, tables;
end $_$;

CREATE FUNCTION pipeline.passed_upto(reader pipeline.consumers) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $_$
declare
    upto bigint;
begin
    if to_regclass(pipeline.events_relation(reader.events_table)) is null then
        return reader.position;
    end if;
    execute format($query$
        select coalesce((
            select e.seq - 1 from %1$s e
            where e.seq > $1 and e.seq < $1 + 20000
                and pipeline.matches($2, e.source_table_schema, e.source_table_name)
                and (cardinality($3) = 0 or e.action = any ($3))
            order by e.seq limit 1
        ), greatest($1, pipeline.before_jump($4,
            least($1 + 19999, (select e.seq from %1$s e order by e.seq desc limit 1)))))$query$,
        pipeline.events_relation(reader.events_table))
    into upto using reader.position, reader.tables, reader.actions, reader.events_table;
    return upto;
end $_$;

CREATE FUNCTION pipeline.pause_consumer(name text) RETURNS pipeline.consumers
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select pipeline.set_consumer_state(name, 'paused')
$$;

CREATE FUNCTION pipeline.populate(base anyelement, record jsonb, exact jsonb DEFAULT NULL::jsonb) RETURNS anyelement
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lc_monetary TO 'C'
    SET "DateStyle" TO 'ISO, YMD'
    SET "IntervalStyle" TO 'postgres'
    SET array_nulls TO 'on'
    SET xmloption TO 'content'
    AS $_$
declare
    filled alias for $0;
    composite pg_type;
    documents text[];
    kept text;
    replaced text;
begin
    -- jsonb_populate_record passes strings and numbers to the input function of each column's type. Columns of json and
    -- jsonb differ: it turns a string into a document and null into an SQL NULL. Those in exact are cast one by one.
    if exact is null then
        return jsonb_populate_record(base, record);
    end if;
    select * into composite from pg_type where oid = pg_typeof(base)::oid;
    while composite.typtype = 'd' loop
        select * into composite from pg_type where oid = composite.typbasetype;
    end loop;
    select coalesce(array_agg(a.attname::text) filter (where a.document), '{}'),
        string_agg(a.field, ', ' order by a.attnum),
        string_agg(case when a.document then a.of_exact else a.field end, ', ' order by a.attnum)
    into documents, kept, replaced
    from (
        select attnum, attname, format('($1).%I', attname) as field,
            format('($2 ->> %L)::%s', attname, format_type(atttypid, atttypmod)) as of_exact,
            -- A domain has the output function of what it is over.
            exact ? attname and (
                select typoutput in ('json_out'::regproc, 'jsonb_out'::regproc) from pg_type where oid = atttypid
            ) as document
        from pg_attribute
        where attrelid = composite.typrelid and attnum > 0 and not attisdropped
    ) a;
    if documents = '{}' then
        return jsonb_populate_record(base, record || exact);
    end if;
    -- A base that is a row, of nulls where it was null: no domain rejects what is missing before it is replaced.
    execute 'select ' || kept into filled using base;
    filled := jsonb_populate_record(filled, (record || exact) - documents);
    execute 'select ' || replaced into filled using filled, exact;
    return filled;
end $_$;

COMMENT ON FUNCTION pipeline.populate(base anyelement, record jsonb, exact jsonb) IS 'The row of an event as its source had it: pipeline.populate(null::shop.orders, record, exact). Reads no table.';

CREATE FUNCTION pipeline.progress_id(reader pipeline.consumers) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case when reader.events_table is not null then 1000000000 + reader.id
        when reader.collapse then reader.id else -reader.id end
$$;

CREATE FUNCTION pipeline.receive(consumer text, max integer DEFAULT 1, visibility interval DEFAULT NULL::interval) RETURNS TABLE(ack_id uuid, seq bigint, commit_lsn bigint, commit_idx integer, source_table_schema text, source_table_name text, record_pk text, action text, record jsonb, changes jsonb, exact jsonb, unchanged_columns text[], transaction_annotations jsonb, metadata jsonb, committed_at timestamp with time zone, deliveries integer)
    LANGUAGE plpgsql SECURITY DEFINER ROWS 10
    SET search_path TO ''
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_sort TO 'off'
    AS $$
#variable_conflict use_column
declare
    me pipeline.consumers;
    upto integer := receive.max;
    handed public.consumer_records[];
    first_seq bigint;
    last_seq bigint;
begin
    select * into me from pipeline.consumers c where c.name = receive.consumer;
    if me.kind is distinct from 'records' then
        me := pipeline.consumer_of(receive.consumer, 'records');  -- raises the error
    end if;
    if receive.max is null or receive.max < 1 or receive.max > 1000 then
        raise invalid_parameter_value using message = format('max is %s: give 1 to 1000', coalesce(max::text, 'null'));
    elsif receive.visibility <= interval '0' then
        raise invalid_parameter_value using message = 'visibility must be longer than 0, or null for the consumer''s';
    end if;
    if me.events_table is not null then
        perform pipeline.require_events_table(me);
    end if;
    if me.state = 'paused' then
        return;
    end if;
    if me.group_by is not null or me.max_unacknowledged is not null or not me.collapse then
        perform pipeline.require_read_committed(me);
        -- If a crash undid this delivery, two receivers could have items of the same row or group.
        perform pipeline.commit_durably();
    end if;
    -- If each event is an item, only the first item of a group is available, and no lock is needed for groups.
    if me.group_by is not null and me.collapse or me.max_unacknowledged is not null then
        -- Without the lock, two receivers at once could both find the group free, or both stay below the limit.
        perform pg_advisory_xact_lock(714629015, me.id);
    end if;
    if exists (
        select from public.consumer_records r
        where r.consumer_id = me.id and r.visible_at <= clock_timestamp() and r.state in ('delivered', 'pending_redelivery'))
    then
        perform pipeline.release_expired(me);
    end if;
    if me.max_unacknowledged is not null then
        select least(upto, me.max_unacknowledged - count(*)) into upto from (
            select from public.consumer_records r
            where r.consumer_id = me.id and r.visible_at > clock_timestamp()
                and r.state in ('delivered', 'pending_redelivery')
            order by r.visible_at limit me.max_unacknowledged) r;
        if upto <= 0 then
            return;
        end if;
    end if;
    -- This is a separate statement: it may find items that are newer than its beginning, and the next statement must
    -- see their events.
    select array_agg(h), min(h.seq), max(h.seq) into handed, first_seq, last_seq
    from pipeline.hand_out(me, upto, coalesce(receive.visibility, me.visibility)) h;
    if handed is null then
        return;
    end if;
    if me.events_table is not null then
        return query select * from pipeline.with_events(me, handed);
        return;
    end if;
    return query
        select h.ack_id, h.seq, h.commit_lsn, h.commit_idx, e.source_table_schema, e.source_table_name,
            h.record_pk, h.action, coalesce(h.record, e.record),
            case when h.record is null then e.changes end, case when h.record is null then e.exact end,
            case when h.record is null then e.unchanged_columns end, e.transaction_annotations, e.metadata,
            e.committed_at, h.deliveries
        from unnest(handed) h
        cross join lateral (
            -- A legacy table may have a seq several times: the event of the item's row is preferred.
            -- With the bounds Postgres skips other partitions before the query begins.
            (select * from pipeline.events e
            where e.seq = h.seq and e.seq between first_seq and last_seq and h.event is null
                and (e.source_table_oid = h.source_table_oid and e.record_pk = h.record_pk or not exists (
                    select from pipeline.events o
                    where o.seq = h.seq and o.seq between first_seq and last_seq
                        and o.source_table_oid = h.source_table_oid and o.record_pk = h.record_pk))
            limit 1)
            union all
            select * from jsonb_populate_record(null::pipeline.events, h.event) where h.event is not null
        ) e
        order by h.queued_seq, h.record is null, h.record_pk;
end $$;

CREATE FUNCTION pipeline.refuse_unaware_reader() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
begin
    if current_setting('pipeline.reads_events_tables', true) is distinct from 'on' then
        raise object_in_use using
            message = 'consumer ' || quote_literal(old.name) || ' reads ' || old.events_table
                || ', and a server of a version before would read the default table',
            hint = 'Connect to a server of this version.';
    end if;
    return new;
end $$;

CREATE FUNCTION pipeline.release_expired(consumer pipeline.consumers) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
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
        if not consumer.collapse then
            perform pipeline.move_up(spent);
        end if;
    end if;
end $$;

CREATE FUNCTION pipeline.require_events_table(reader pipeline.consumers) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $$
begin
    if to_regclass(pipeline.events_relation(reader.events_table)) is null then
        raise numeric_value_out_of_range using
            message = format('consumer %L reads %s, which no longer exists', reader.name, reader.events_table),
            hint = 'Restore the table, or drop the consumer: `pipeline consumers delete ' || reader.name || '`.';
    end if;
end $$;

CREATE FUNCTION pipeline.require_read_committed(me pipeline.consumers) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $$
begin
    if (me.group_by is not null or me.max_unacknowledged is not null or not me.collapse)
        and current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')
    then
        raise active_sql_transaction using message = format('consumer %L has group_by, max_unacknowledged or'
            ' collapse => false, whose receivers have to see each other', me.name),
            hint = 'Do it in a transaction of isolation level read committed.';
    end if;
end $$;

CREATE FUNCTION pipeline.reset_consumer(name text, start text DEFAULT 'beginning'::text) RETURNS pipeline.consumers
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
#variable_conflict use_column
declare
    changed pipeline.consumers := pipeline.consumer_of(reset_consumer.name);
begin
    perform pipeline.require_events_table(changed);
    -- Lock the consumer until the transaction ends, so that the shuffler skips it.
    perform from pipeline.consumer_progress p where p.consumer_id = pipeline.progress_id(changed) for update;
    delete from public.consumer_records r where r.consumer_id = changed.id;
    delete from pipeline.consumer_touches t where t.consumer_id = changed.id;
    update pipeline.consumers c
    set position = pipeline.start_seq(start, c.events_table), reader = null, reader_session = null, reader_since = null,
        updated_at = clock_timestamp()
    where c.id = changed.id
    returning c.* into changed;
    update pipeline.consumer_progress p set folded_seq = changed.position
    where p.consumer_id = pipeline.progress_id(changed);
    delete from pipeline.walstream_sessions where changed.name = 'walstream';  -- no hold from before the reset remains
    perform pipeline.wake_consumer(changed.name);
    return changed;
end $$;

CREATE FUNCTION pipeline.resume_consumer(name text) RETURNS pipeline.consumers
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select pipeline.set_consumer_state(name, 'active')
$$;

CREATE FUNCTION pipeline.retry_dead(consumer text, seqs bigint[] DEFAULT NULL::bigint[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO ''
    AS $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    retried integer;
begin
    if me.collapse then
        update public.consumer_records r set state = 'available', deliveries = 0, unkeyed = abs(r.unkeyed)
        where r.consumer_id = me.id and r.state = 'dead' and (retry_dead.seqs is null or r.seq = any (retry_dead.seqs));
        get diagnostics retried = row_count;
    else
        retried := pipeline.retry_in_line(me, seqs);
    end if;
    if retried > 0 then
        perform pipeline.wake_consumer(me.name);
    end if;
    return retried;
end $$;

CREATE FUNCTION pipeline.retry_in_line(me pipeline.consumers, seqs bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
declare
    back public.consumer_records[];
begin
    perform pipeline.require_read_committed(me);
    -- With these locks no session adds items, and no session settles an item without seeing the dead letters.
    perform from pipeline.consumer_progress p where p.consumer_id = pipeline.progress_id(me) for update;
    perform pg_advisory_xact_lock(714629016, me.id);
    with put as (
        update public.consumer_records r
        set state = 'blocked', deliveries = 0, left_pk = null,
            unkeyed = case when me.group_by is null then abs(r.unkeyed) else r.unkeyed end
        where r.consumer_id = me.id and r.state = 'dead'
            and (retry_in_line.seqs is null or r.seq = any (retry_in_line.seqs))
        returning r)
    select array_agg(put.r) into back from put;
    insert into public.consumer_records as r
    select i.* from unnest(back) i
    on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update set state = 'available'
    where (r.unkeyed < 0 or r.is_alone or not exists (
            select from public.consumer_records o
            where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid
                and o.record_pk = r.record_pk and o.unkeyed > 0 and not o.is_alone
                and (o.unkeyed < r.unkeyed or o.state in ('available', 'delivered'))
            union all
            select from public.consumer_records o
            where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid
                and o.left_pk = r.record_pk and o.unkeyed > 0 and o.state in ('available', 'delivered')))
        and (r.group_id = '' or not exists (
            select from public.consumer_records o
            where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.group_id <> '' and o.state <> 'dead'
                and (o.queued_seq < r.queued_seq or o.state in ('available', 'delivered'))));
    return coalesce(cardinality(back), 0);
end $$;

CREATE FUNCTION pipeline.seqs_between(events_table text, after bigint, upto bigint) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO ''
    AS $$
    -- Two jumps without an event between them begin behind the same event.
    select greatest(0, seqs_between.upto - seqs_between.after - coalesce((
        select sum(greatest(0, least(seqs_between.upto, j.after - 1) - greatest(seqs_between.after, j.before)))
        from (
            select s.before, max(s.after) as after from pipeline.seq_jumps s
            where s.events_table = coalesce(seqs_between.events_table, pipeline.default_events_table())
            group by s.before
        ) j), 0))::bigint
$$;

CREATE FUNCTION pipeline.set_consumer_state(consumer text, state text) RETURNS pipeline.consumers
    LANGUAGE plpgsql
    SET search_path TO ''
    AS $$
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

CREATE FUNCTION pipeline.start_seq(start text) RETURNS bigint
    LANGUAGE sql STABLE
    SET search_path TO ''
    AS $$
    select pipeline.start_seq(start, null)
$$;

CREATE FUNCTION pipeline.start_seq(start text, events_table text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO ''
    AS $_$
declare
    head bigint := pipeline.log_head(start_seq.events_table);
    lowest bigint := pipeline.log_floor(start_seq.events_table);
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
            message = format('events up to seq %s are no longer kept, so no consumer can begin after %s', lowest, asked),
            hint = format('Begin after %s, or at ''beginning'': the oldest event that is kept.', lowest);
    end if;
    if pipeline.before_jump(start_seq.events_table, asked) < asked then
        raise numeric_value_out_of_range using
            message = format('seq %s is of an event of a log that was lost, so no consumer can begin after it', asked),
            hint = format('Begin after %s, the newest event before that.',
                pipeline.before_jump(start_seq.events_table, asked));
    end if;
    return asked;
end $_$;

CREATE FUNCTION pipeline.visibility_of(consumer text) RETURNS interval
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO ''
    AS $$
    select (pipeline.consumer_of(visibility_of.consumer, 'records')).visibility
$$;

CREATE FUNCTION pipeline.wake_consumer(consumer text) RETURNS void
    LANGUAGE sql
    SET search_path TO ''
    AS $$
    select pg_notify('pipeline_consumers', consumer)
$$;

CREATE FUNCTION pipeline.with_events(reader pipeline.consumers, handed public.consumer_records[]) RETURNS TABLE(ack_id uuid, seq bigint, commit_lsn bigint, commit_idx integer, source_table_schema text, source_table_name text, record_pk text, action text, record jsonb, changes jsonb, exact jsonb, unchanged_columns text[], transaction_annotations jsonb, metadata jsonb, committed_at timestamp with time zone, deliveries integer)
    LANGUAGE plpgsql STABLE ROWS 10
    SET search_path TO ''
    AS $_$
begin
    return query execute format($query$
        select h.ack_id, h.seq, h.commit_lsn, h.commit_idx, e.source_table_schema, e.source_table_name,
            h.record_pk, h.action, coalesce(h.record, e.record),
            case when h.record is null then e.changes end, case when h.record is null then e.exact end,
            case when h.record is null then e.unchanged_columns end, e.transaction_annotations, e.metadata,
            e.committed_at, h.deliveries
        from unnest($1) h
        cross join lateral (
            (select to_jsonb(e) as event from %s e
            where e.seq = h.seq and e.seq between $2 and $3 and h.event is null
            order by (e.source_table_oid = h.source_table_oid and e.record_pk = h.record_pk) desc limit 1)
            union all
            select h.event where h.event is not null
        ) found_one
        cross join lateral jsonb_populate_record(null::pipeline.events, found_one.event) e
        order by h.queued_seq, h.record is null, h.record_pk$query$, pipeline.events_relation(reader.events_table))
    using handed, (select min(h.seq) from unnest(handed) h), (select max(h.seq) from unnest(handed) h);
end $_$;

CREATE TABLE pipeline.adopted_tables (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    run bigint NOT NULL,
    generation bigint NOT NULL,
    events_table text NOT NULL,
    table_name text NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    attaches boolean NOT NULL,
    ends boolean NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    first_lsn bigint NOT NULL,
    last_lsn bigint NOT NULL,
    relations integer[] NOT NULL,
    filled_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT adopted_tables_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'moved'::text])))
);

COMMENT ON TABLE pipeline.adopted_tables IS 'Tables with rows of an events table, in the order of the log, that wait to become partitions of it.';

COMMENT ON COLUMN pipeline.adopted_tables.attaches IS 'True if the table becomes a partition; false if its rows are moved, because it has no indexes.';

COMMENT ON COLUMN pipeline.adopted_tables.ends IS 'True if the table ends with a complete transaction; false if its last transaction continues in the next table.';

COMMENT ON COLUMN pipeline.adopted_tables.relations IS 'The table versions of its rows.';

ALTER TABLE pipeline.adopted_tables ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.adopted_tables_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.adoptions (
    source_id uuid NOT NULL,
    events_table text DEFAULT ''::text NOT NULL,
    run bigint DEFAULT 0 NOT NULL,
    generation bigint DEFAULT 0 NOT NULL,
    from_seq bigint,
    not_before bigint DEFAULT 0 NOT NULL,
    moved_run bigint DEFAULT 0 NOT NULL,
    held_by text,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.adoptions IS 'Workers that write their backlogs as partitions of the events table, and what delays them.';

COMMENT ON COLUMN pipeline.adoptions.run IS 'The number of the last run. A run begins when everything staged is in the log.';

COMMENT ON COLUMN pipeline.adoptions.from_seq IS 'No other writer uses this seq or a later one; null between runs.';

COMMENT ON COLUMN pipeline.adoptions.not_before IS 'Transactions up to this commit_lsn are staged, so no run contains them.';

COMMENT ON COLUMN pipeline.adoptions.moved_run IS 'The tables of this run, and of earlier ones, no longer become partitions: their rows are moved.';

CREATE TABLE pipeline.replication_progress (
    source_id uuid NOT NULL,
    worker integer DEFAULT 0 NOT NULL,
    epoch integer NOT NULL,
    generation bigint DEFAULT 1 NOT NULL,
    "position" bigint NOT NULL,
    commit_lsn bigint DEFAULT 0 NOT NULL,
    committed_at timestamp with time zone,
    open_commit_lsn bigint,
    open_changes bigint DEFAULT 0 NOT NULL,
    changes bigint DEFAULT 0 NOT NULL,
    transactions bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    backend_pid integer,
    backend_start timestamp with time zone
);

COMMENT ON COLUMN pipeline.replication_progress.generation IS 'Grows with each new worker; a worker of an older generation can write nothing.';

COMMENT ON COLUMN pipeline.replication_progress."position" IS 'The LSN that may be confirmed: the end of the last completely staged transaction, or a later LSN without changes to stage before it.';

COMMENT ON COLUMN pipeline.replication_progress.backend_pid IS 'With backend_start, the session of the newest writer, which a newer writer may end.';

CREATE VIEW pipeline.adopting_sources AS
 SELECT a.source_id
   FROM (pipeline.adoptions a
     JOIN pipeline.replication_progress p ON (((p.source_id = a.source_id) AND (p.worker = 0) AND (p.generation = a.generation))))
  WHERE (a.from_seq IS NOT NULL)
UNION
 SELECT t.source_id
   FROM pipeline.adopted_tables t
  WHERE (t.state = 'waiting'::text);

COMMENT ON VIEW pipeline.adopting_sources IS 'Sources whose backlog has reserved the next seqs: other writers get seqs once the backlog is in the log.';

CREATE VIEW pipeline.advisory_locks AS
 SELECT pid,
        CASE objsubid
            WHEN 1 THEN (((classid)::bigint << 32) | (objid)::bigint)
            ELSE NULL::bigint
        END AS key,
        CASE objsubid
            WHEN 2 THEN ((((classid)::bigint << 32) >> 32))::integer
            ELSE NULL::integer
        END AS key1,
        CASE objsubid
            WHEN 2 THEN ((((objid)::bigint << 32) >> 32))::integer
            ELSE NULL::integer
        END AS key2
   FROM pg_locks l
  WHERE ((locktype = 'advisory'::text) AND granted AND (database = ( SELECT pg_database.oid
           FROM pg_database
          WHERE (pg_database.datname = current_database()))));

COMMENT ON VIEW pipeline.advisory_locks IS 'Advisory locks that are held in this database.';

COMMENT ON COLUMN pipeline.advisory_locks.key IS 'The argument of pg_advisory_lock, if it was one number.';

COMMENT ON COLUMN pipeline.advisory_locks.key1 IS 'The first argument of pg_advisory_lock, if there were two.';

CREATE TABLE pipeline.alembic_version (
    version_num character varying(32) NOT NULL
);

CREATE TABLE pipeline.backfills (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    table_oid bigint NOT NULL,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    kind text NOT NULL,
    condition text,
    state text DEFAULT 'waiting'::text NOT NULL,
    reason text,
    after_xid xid8,
    after_lsn bigint,
    since_seqs jsonb,
    files jsonb DEFAULT '{}'::jsonb NOT NULL,
    by_key boolean,
    rows_estimated bigint,
    bytes_estimated bigint,
    ranges_all integer DEFAULT 0 NOT NULL,
    ranges_done integer DEFAULT 0 NOT NULL,
    rows_read bigint DEFAULT 0 NOT NULL,
    rows_added bigint DEFAULT 0 NOT NULL,
    events_table text,
    first_seq bigint,
    last_seq bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    gap_after bigint,
    gap_until bigint,
    told_seqs jsonb,
    floor_seqs jsonb,
    relations bigint[],
    bounds jsonb,
    CONSTRAINT backfills_kind_check CHECK ((kind = ANY (ARRAY['initial'::text, 'asked'::text, 'differences'::text]))),
    CONSTRAINT backfills_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'reading'::text, 'paused'::text, 'complete'::text, 'failed'::text, 'cancelled'::text])))
);

COMMENT ON TABLE pipeline.backfills IS 'Readings of the rows of a table: because it joined a publication, or because a user requested it.';

COMMENT ON COLUMN pipeline.backfills.table_oid IS 'The table; for partitions, their root.';

COMMENT ON COLUMN pipeline.backfills.kind IS 'initial: the table joined a publication. asked: a user requested it. differences: only rows that differ from the log are appended.';

COMMENT ON COLUMN pipeline.backfills.condition IS 'SQL that is true for the rows to read; null: all rows.';

COMMENT ON COLUMN pipeline.backfills.reason IS 'What it waits for, or why it has failed.';

COMMENT ON COLUMN pipeline.backfills.after_xid IS 'The reading begins once all transactions with a smaller xid have ended, because these may have written before the table joined.';

COMMENT ON COLUMN pipeline.backfills.after_lsn IS 'The end of the source''s WAL when after_xid was read.';

COMMENT ON COLUMN pipeline.backfills.since_seqs IS 'By events table, the last seq before after_xid was read: transactions from that xid on have later seqs.';

COMMENT ON COLUMN pipeline.backfills.files IS 'pg_relation_filenode of each planned relation, by oid: in another file, rows are in other blocks.';

COMMENT ON COLUMN pipeline.backfills.by_key IS 'True if keys identify the rows; if false, the table is read as one range.';

COMMENT ON COLUMN pipeline.backfills.rows_added IS 'The number of rows that became events; for the other rows, the log had a newer event.';

COMMENT ON COLUMN pipeline.backfills.last_seq IS 'Seq of its last event in events_table.';

COMMENT ON COLUMN pipeline.backfills.gap_after IS 'The log lacks changes that the source made between this LSN and gap_until; null: no gap is known.';

COMMENT ON COLUMN pipeline.backfills.told_seqs IS 'The value of snapshot_tables when this began; null: the log did not say which rows the table had.';

COMMENT ON COLUMN pipeline.backfills.floor_seqs IS 'By events table, the seq up to which retention had dropped events when the comparison was planned.';

COMMENT ON COLUMN pipeline.backfills.relations IS 'For a partitioned table: only these leaf partitions are read; null: all.';

COMMENT ON COLUMN pipeline.backfills.bounds IS 'For a comparison: only keys within one of these bounds, each as in pipeline.partitions; null: all.';

ALTER TABLE pipeline.backfills ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.backfills_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.captured_tables (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    table_oid bigint NOT NULL,
    table_name text NOT NULL,
    joined_at timestamp with time zone DEFAULT now() NOT NULL,
    joined_lsn bigint NOT NULL,
    was_empty boolean,
    left_at timestamp with time zone,
    left_lsn bigint,
    left_epoch integer,
    root_oid bigint
);

COMMENT ON TABLE pipeline.captured_tables IS 'The times during which a table was in a publication. Changes between two such times are not in the log.';

COMMENT ON COLUMN pipeline.captured_tables.epoch IS 'The epoch of joined_lsn.';

COMMENT ON COLUMN pipeline.captured_tables.joined_lsn IS 'Changes from this LSN on are captured.';

COMMENT ON COLUMN pipeline.captured_tables.was_empty IS 'True if the table had no rows when it joined; null: unknown. Rows that it had are not in the log.';

COMMENT ON COLUMN pipeline.captured_tables.left_lsn IS 'Changes after this LSN are not captured; null: the table is still in a publication.';

COMMENT ON COLUMN pipeline.captured_tables.root_oid IS 'The root of its partitions when it joined, or the table itself; null: unknown.';

ALTER TABLE pipeline.captured_tables ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.captured_tables_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.carried_transactions (
    source_id uuid NOT NULL,
    commit_lsn bigint NOT NULL,
    committed_at timestamp with time zone NOT NULL
);

COMMENT ON TABLE pipeline.carried_transactions IS 'Transactions of earlier epochs that the slot of a restored source may send again: those that match are skipped.';

CREATE TABLE pipeline.catchup_parts (
    source_id uuid NOT NULL,
    worker integer NOT NULL,
    epoch integer NOT NULL,
    from_lsn bigint NOT NULL,
    until_lsn bigint,
    planned_at timestamp with time zone DEFAULT now() NOT NULL,
    first_seq bigint,
    CONSTRAINT catchup_parts_check CHECK ((until_lsn > from_lsn)),
    CONSTRAINT catchup_parts_worker_check CHECK ((worker > 0))
);

COMMENT ON TABLE pipeline.catchup_parts IS 'Parts of a backlog, for several workers: commit records begin in [from_lsn, until_lsn). Worker 0 stages everything before them; without rows here, everything.';

COMMENT ON COLUMN pipeline.catchup_parts.until_lsn IS 'Null: the newest part, which has no end yet.';

COMMENT ON COLUMN pipeline.catchup_parts.first_seq IS 'The part may become partitions with seqs from this one on; null: it is staged, and moved.';

CREATE TABLE pipeline.consumer_progress (
    consumer_id integer NOT NULL,
    folded_seq bigint NOT NULL
)
WITH (fillfactor='50');

COMMENT ON TABLE pipeline.consumer_progress IS 'The seq up to which the log is in consumer_records. The shuffler skips rows that an administrative function locks.';

COMMENT ON COLUMN pipeline.consumer_progress.consumer_id IS 'The value of pipeline.progress_id, so that servers of earlier versions find only consumers that they can serve.';

CREATE TABLE pipeline.consumer_touches (
    consumer_id integer NOT NULL,
    source_table_oid bigint NOT NULL,
    record_pk text NOT NULL COLLATE pg_catalog."C",
    unkeyed bigint DEFAULT 0 NOT NULL,
    seq bigint NOT NULL,
    queued_seq bigint NOT NULL,
    commit_lsn bigint,
    commit_idx integer,
    action text NOT NULL,
    record jsonb,
    group_id text
);

COMMENT ON TABLE pipeline.consumer_touches IS 'Changes and items that wait because an open transaction of a client has locked an item. The shuffler checks them again until it ends.';

ALTER TABLE pipeline.consumers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.consumers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.dead_letters (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    commit_lsn bigint NOT NULL,
    commit_idx integer NOT NULL,
    xid bigint NOT NULL,
    relation_id integer NOT NULL,
    table_oid bigint NOT NULL,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    action text NOT NULL,
    record_pk text NOT NULL COLLATE pg_catalog."C",
    record text NOT NULL,
    changes text,
    exact text,
    unchanged_columns text,
    transaction_annotations text,
    committed_at timestamp with time zone NOT NULL,
    events_table text NOT NULL,
    seq bigint NOT NULL,
    retried_seq bigint,
    cause text NOT NULL,
    sqlstate text NOT NULL,
    state text DEFAULT 'parked'::text NOT NULL,
    attempts integer DEFAULT 1 NOT NULL,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT dead_letters_state_check CHECK ((state = ANY (ARRAY['parked'::text, 'retrying'::text, 'retried'::text, 'discarded'::text])))
);

COMMENT ON TABLE pipeline.dead_letters IS 'Changes that could not be written to an events table, as they were staged. Each has an event in its place.';

COMMENT ON COLUMN pipeline.dead_letters.seq IS 'seq of the event that holds its place; retried_seq: of the event that has its values.';

COMMENT ON COLUMN pipeline.dead_letters.cause IS 'Why the last attempt failed.';

ALTER TABLE pipeline.dead_letters ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.dead_letters_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.epochs (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    system_identifier text NOT NULL,
    timeline integer,
    from_lsn bigint NOT NULL,
    previous_position bigint,
    after_seq bigint DEFAULT 0 NOT NULL,
    reason text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    after_seqs jsonb DEFAULT '{}'::jsonb NOT NULL
);

COMMENT ON TABLE pipeline.epochs IS 'Epochs of a source. LSNs can be compared only within one epoch. The command `pipeline sources adopt` begins the next one.';

COMMENT ON COLUMN pipeline.epochs.previous_position IS 'The LSN up to which the previous epoch was staged when this one began.';

COMMENT ON COLUMN pipeline.epochs.after_seq IS 'The last seq of the previous epoch.';

COMMENT ON COLUMN pipeline.epochs.after_seqs IS 'The last seq of the previous epoch in each events table.';

CREATE TABLE public.sequin_events (
    seq bigint NOT NULL,
    source_database_id uuid NOT NULL,
    source_epoch integer DEFAULT 0 NOT NULL,
    commit_lsn bigint,
    commit_idx integer,
    xid bigint,
    source_table_oid bigint NOT NULL,
    source_table_schema text NOT NULL,
    source_table_name text NOT NULL,
    record_pk text NOT NULL COLLATE pg_catalog."C",
    record jsonb NOT NULL,
    changes jsonb,
    exact jsonb,
    action text NOT NULL,
    unchanged_columns text[],
    transaction_annotations jsonb,
    metadata jsonb,
    committed_at timestamp with time zone NOT NULL,
    inserted_at timestamp with time zone DEFAULT now() NOT NULL
)
PARTITION BY RANGE (seq);

COMMENT ON TABLE public.sequin_events IS 'Every committed change of the source, in commit order. Read: where seq > $last order by seq.';

CREATE VIEW pipeline.events AS
 SELECT seq,
    source_database_id,
    source_epoch,
    commit_lsn,
    commit_idx,
    xid,
    source_table_oid,
    source_table_schema,
    source_table_name,
    (record_pk COLLATE "C") AS record_pk,
    record,
    changes,
    exact,
    action,
    unchanged_columns,
    transaction_annotations,
    metadata,
    committed_at,
    inserted_at
   FROM public.sequin_events;

COMMENT ON VIEW pipeline.events IS 'The log of this server: the table that PIPELINE_EVENTS_TABLE names.';

CREATE TABLE pipeline.events_tables (
    source_id uuid NOT NULL,
    name text NOT NULL,
    last_seq bigint,
    events bigint DEFAULT 0 NOT NULL,
    added_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.events_tables IS 'Every events table that was ever written for a source: its newest seq, and the number of events that the shuffler added.';

CREATE TABLE pipeline.export_compactions (
    id bigint NOT NULL,
    lake_id uuid NOT NULL,
    state text DEFAULT 'writing'::text NOT NULL,
    holder text NOT NULL,
    reason text,
    written json,
    replaced json,
    files_before integer NOT NULL,
    files_after integer NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT export_compactions_state_check CHECK ((state = ANY (ARRAY['writing'::text, 'switched'::text, 'done'::text, 'failed'::text])))
);

COMMENT ON TABLE pipeline.export_compactions IS 'Merges of small files. switched: the ledger and Iceberg have the new files; the folders of days may still lack them.';

COMMENT ON COLUMN pipeline.export_compactions.written IS 'Paths of the new files; null once the merge is complete.';

COMMENT ON COLUMN pipeline.export_compactions.replaced IS 'Paths of the files that the new ones replace; null once the merge is complete.';

ALTER TABLE pipeline.export_compactions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_compactions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_datasets (
    lake_id uuid NOT NULL,
    dataset text NOT NULL,
    part bigint NOT NULL,
    sealed bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    upto_seq bigint
);

COMMENT ON TABLE pipeline.export_datasets IS 'The head of a lake''s manifest: the newest part of each dataset, and the parts that are full.';

COMMENT ON COLUMN pipeline.export_datasets.upto_seq IS 'The seq up to which its newest part lists files; null: the seq in the name of the part.';

CREATE TABLE pipeline.export_files (
    id bigint NOT NULL,
    export_id bigint NOT NULL,
    lake_id uuid NOT NULL,
    dataset text NOT NULL,
    schema_id bigint NOT NULL,
    source_id uuid,
    source_epoch integer,
    table_oid bigint,
    path text NOT NULL,
    staged text,
    rows bigint NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    first_lsn bigint,
    first_idx integer,
    last_lsn bigint,
    last_idx integer,
    part bigint,
    day date,
    merged smallint DEFAULT 0 NOT NULL
);

COMMENT ON TABLE pipeline.export_files IS 'Files of changes. They are in the lake when their export is committed.';

COMMENT ON COLUMN pipeline.export_files.table_oid IS 'The table of all its changes; null: an earlier version wrote the file, with the changes of all tables of that name.';

COMMENT ON COLUMN pipeline.export_files.staged IS 'The path of the file before its export was published.';

COMMENT ON COLUMN pipeline.export_files.first_lsn IS 'The lowest commit_lsn in the file, with the lowest commit_idx; last_lsn has the highest. They tell which versions of the table the file has.';

COMMENT ON COLUMN pipeline.export_files.part IS 'The full part of the manifest that lists the file; null: the newest part lists it.';

COMMENT ON COLUMN pipeline.export_files.day IS 'The UTC date of its changes; null: an earlier version wrote the file, which is never merged.';

COMMENT ON COLUMN pipeline.export_files.merged IS '0: as it was exported. 1: merged before its day had ended. 2: never merged again.';

ALTER TABLE pipeline.export_files ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_files_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_iceberg (
    lake_id uuid NOT NULL,
    catalog text NOT NULL,
    uri text NOT NULL,
    location text NOT NULL,
    number bigint DEFAULT 0 NOT NULL,
    upto_seq bigint DEFAULT 0 NOT NULL,
    kept_seq bigint DEFAULT 0 NOT NULL,
    committed_at timestamp with time zone
);

COMMENT ON TABLE pipeline.export_iceberg IS 'Lakes with Iceberg tables, and the seq up to which all of these have the changes; stored in the transaction that sets their metadata.';

COMMENT ON COLUMN pipeline.export_iceberg.uri IS 'The address of another catalog; empty: the catalog is pipeline.iceberg_tables.';

COMMENT ON COLUMN pipeline.export_iceberg.location IS 'Where the lake was when this was stored: the metadata has absolute paths.';

COMMENT ON COLUMN pipeline.export_iceberg.number IS 'The number of the last commit.';

COMMENT ON COLUMN pipeline.export_iceberg.kept_seq IS 'The last seq of the oldest commit that readers may still read.';

CREATE TABLE pipeline.export_iceberg_commits (
    lake_id uuid NOT NULL,
    number bigint NOT NULL,
    upto_seq bigint NOT NULL,
    committed_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.export_iceberg_commits IS 'Commits of all Iceberg tables that readers may still read.';

CREATE TABLE pipeline.export_iceberg_tables (
    lake_id uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    dataset text NOT NULL,
    version integer,
    table_id bigint,
    state_id bigint,
    oldest bigint NOT NULL,
    newest bigint NOT NULL
);

COMMENT ON TABLE pipeline.export_iceberg_tables IS 'Iceberg tables: changes of a dataset and schema version, or the current state of a table.';

COMMENT ON COLUMN pipeline.export_iceberg_tables.state_id IS 'The version of the state whose files the table has.';

COMMENT ON COLUMN pipeline.export_iceberg_tables.oldest IS 'The number of the oldest commit of which the table has a snapshot.';

CREATE TABLE pipeline.export_iceberg_written (
    lake_id uuid NOT NULL,
    path text NOT NULL
);

COMMENT ON TABLE pipeline.export_iceberg_written IS 'Metadata files of a commit that is being made; if it fails, the next run removes them.';

CREATE TABLE pipeline.export_replaced (
    id bigint NOT NULL,
    lake_id uuid NOT NULL,
    path text NOT NULL,
    replaced_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.export_replaced IS 'Files that newer ones have replaced. They stay for a while, because a reader may still read them.';

ALTER TABLE pipeline.export_replaced ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_replaced_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_requests (
    id bigint NOT NULL,
    requested_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    answered_at timestamp with time zone,
    refusal text
);

COMMENT ON TABLE pipeline.export_requests IS 'Requests over HTTP to export at once. The schedule role answers each within a minute, or never.';

COMMENT ON COLUMN pipeline.export_requests.refusal IS 'Why the role exports nothing; null: it has begun to export.';

ALTER TABLE pipeline.export_requests ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_requests_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_runs (
    id bigint NOT NULL,
    trigger text NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    holder text NOT NULL,
    log text,
    reason text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT export_runs_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'failed'::text, 'stopped'::text])))
);

COMMENT ON TABLE pipeline.export_runs IS 'Every run of the export, by schedule or by command, and why it ended.';

ALTER TABLE pipeline.export_runs ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_schemas (
    id bigint NOT NULL,
    lake_id uuid NOT NULL,
    dataset text NOT NULL,
    version integer NOT NULL,
    columns json NOT NULL,
    key json NOT NULL
);

COMMENT ON TABLE pipeline.export_schemas IS 'Columns and key of the files of a dataset and schema version: a newer row has more columns, or wider types.';

ALTER TABLE pipeline.export_schemas ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_schemas_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_states (
    id bigint NOT NULL,
    lake_id uuid NOT NULL,
    dataset text NOT NULL,
    seq bigint NOT NULL,
    state text DEFAULT 'writing'::text NOT NULL,
    schema_version integer NOT NULL,
    columns json NOT NULL,
    buckets integer,
    rows bigint,
    bytes bigint,
    files jsonb,
    source_epoch integer,
    source_table_oid bigint,
    reason text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    committed_at timestamp with time zone,
    table_id bigint,
    form_id integer,
    superseded_at timestamp with time zone,
    CONSTRAINT export_states_state_check CHECK ((state = ANY (ARRAY['writing'::text, 'committed'::text, 'failed'::text, 'dropped'::text])))
);

COMMENT ON TABLE pipeline.export_states IS 'Versions of the current state of each table: as of which seq, in which files.';

COMMENT ON COLUMN pipeline.export_states.form_id IS 'The table version, a row of pipeline.relations, whose columns it has.';

COMMENT ON COLUMN pipeline.export_states.superseded_at IS 'When a newer version replaced it; null: it is the newest.';

ALTER TABLE pipeline.export_states ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_states_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_tables (
    id bigint NOT NULL,
    lake_id uuid NOT NULL,
    source_id uuid NOT NULL,
    source_epoch integer NOT NULL,
    table_oid bigint NOT NULL,
    dataset text,
    shows bigint,
    waits_since timestamp with time zone
);

COMMENT ON TABLE pipeline.export_tables IS 'Tables with a current state, by the oid that each had in the first epoch that knows it, even if they are renamed.';

COMMENT ON COLUMN pipeline.export_tables.dataset IS 'The name of the table in `current`; null: it has none, because it was renamed, or another table has that name.';

COMMENT ON COLUMN pipeline.export_tables.shows IS 'The seq to which `latest` is known to be set; null: it must be set.';

COMMENT ON COLUMN pipeline.export_tables.waits_since IS 'Since when its current state lacks changes that wait because they are few for its size; null: none wait.';

ALTER TABLE pipeline.export_tables ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.export_tables_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.export_written (
    lake_id uuid NOT NULL,
    path text NOT NULL,
    export_id bigint,
    state_id bigint
);

COMMENT ON TABLE pipeline.export_written IS 'Objects that a run of the export writes to a bucket. After the run, those that nothing lists are removed.';

COMMENT ON COLUMN pipeline.export_written.state_id IS 'The version of a state to which the object belongs; null: it belongs to an export.';

CREATE TABLE pipeline.exports (
    id bigint NOT NULL,
    lake_id uuid NOT NULL,
    run_id bigint,
    after_seq bigint NOT NULL,
    upto_seq bigint NOT NULL,
    state text DEFAULT 'writing'::text NOT NULL,
    rows bigint,
    bytes bigint,
    files jsonb,
    schemas json,
    holder text NOT NULL,
    reason text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    committed_at timestamp with time zone,
    last_committed_at timestamp with time zone,
    CONSTRAINT exports_check CHECK ((upto_seq > after_seq)),
    CONSTRAINT exports_state_check CHECK ((state = ANY (ARRAY['writing'::text, 'publishing'::text, 'committed'::text, 'failed'::text])))
);

COMMENT ON TABLE pipeline.exports IS 'The ledger: ranges of seqs, each without its first seq. A committed range is in the lake, completely and once.';

COMMENT ON COLUMN pipeline.exports.files IS 'Files that an earlier version wrote; they become rows of export_files.';

COMMENT ON COLUMN pipeline.exports.schemas IS 'Schemas that an earlier version wrote.';

COMMENT ON COLUMN pipeline.exports.last_committed_at IS 'The latest commit in the range; -infinity: it has none; null: an earlier version wrote the row.';

ALTER TABLE pipeline.exports ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.exports_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.follower_tables (
    follower_id bigint NOT NULL,
    table_oid bigint NOT NULL,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    state text DEFAULT 'waiting'::text NOT NULL,
    reason text,
    remedy text,
    CONSTRAINT follower_tables_state_check CHECK ((state = ANY (ARRAY['waiting'::text, 'copying'::text, 'following'::text, 'stopped'::text, 'different'::text])))
);

COMMENT ON TABLE pipeline.follower_tables IS 'The tables of each follower, with their states and the reasons.';

COMMENT ON COLUMN pipeline.follower_tables.table_oid IS 'The table at the source; for partitions, their root.';

CREATE TABLE pipeline.followers (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    name text NOT NULL,
    dsn text NOT NULL,
    tables text[] DEFAULT '{}'::text[] NOT NULL,
    copy text DEFAULT 'source'::text NOT NULL,
    schema_mode text DEFAULT 'create'::text NOT NULL,
    ddl text DEFAULT 'follow'::text NOT NULL,
    on_rewrite text DEFAULT 'copy'::text NOT NULL,
    truncates boolean DEFAULT false NOT NULL,
    system_identifier text NOT NULL,
    database_oid oid NOT NULL,
    database_name text NOT NULL,
    wanted text DEFAULT 'running'::text NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    made_seq bigint NOT NULL,
    seq bigint NOT NULL,
    commit_lsn bigint,
    committed_at timestamp with time zone,
    state text DEFAULT 'waiting'::text NOT NULL,
    reason text,
    remedy text,
    reported_at timestamp with time zone,
    CONSTRAINT followers_copy_check CHECK ((copy = ANY (ARRAY['source'::text, 'log'::text, 'none'::text]))),
    CONSTRAINT followers_ddl_check CHECK ((ddl = ANY (ARRAY['follow'::text, 'stop'::text]))),
    CONSTRAINT followers_on_rewrite_check CHECK ((on_rewrite = ANY (ARRAY['copy'::text, 'stop'::text]))),
    CONSTRAINT followers_schema_mode_check CHECK ((schema_mode = ANY (ARRAY['create'::text, 'exists'::text]))),
    CONSTRAINT followers_state_check CHECK ((state = ANY (ARRAY['copying'::text, 'following'::text, 'waiting'::text, 'paused'::text, 'stopped'::text]))),
    CONSTRAINT followers_wanted_check CHECK ((wanted = ANY (ARRAY['running'::text, 'paused'::text])))
);

COMMENT ON TABLE pipeline.followers IS 'Databases that the server keeps equal to the source by applying the log, and how far each is.';

COMMENT ON COLUMN pipeline.followers.dsn IS 'Its connection string, without any password.';

COMMENT ON COLUMN pipeline.followers.tables IS 'Patterns of its tables; empty: all that are captured.';

COMMENT ON COLUMN pipeline.followers.copy IS 'The origin of its first rows. source: copied from the source. log: written from the first event of the log on. none: it has them already.';

COMMENT ON COLUMN pipeline.followers.truncates IS 'True if tables with rows are emptied before they are copied.';

COMMENT ON COLUMN pipeline.followers.system_identifier IS 'The system identifier of its cluster when it was added.';

COMMENT ON COLUMN pipeline.followers.wanted IS 'What a user asked for; state is what its applier does.';

COMMENT ON COLUMN pipeline.followers.made_seq IS 'The newest seq when it was added.';

COMMENT ON COLUMN pipeline.followers.seq IS 'The seq up to which the log is applied, as its applier last reported. The follower needs every later event.';

COMMENT ON COLUMN pipeline.followers.reason IS 'Why it is in this state.';

COMMENT ON COLUMN pipeline.followers.remedy IS 'What a user can do about the reason.';

ALTER TABLE pipeline.followers ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.followers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.iceberg_namespace_properties (
    catalog_name character varying(255) NOT NULL,
    namespace character varying(255) NOT NULL,
    property_key character varying(255) NOT NULL,
    property_value character varying(1000) NOT NULL
);

COMMENT ON TABLE pipeline.iceberg_namespace_properties IS 'The namespaces of the catalogs in pipeline.iceberg_tables.';

CREATE TABLE pipeline.iceberg_tables (
    catalog_name character varying(255) NOT NULL,
    table_namespace character varying(255) NOT NULL,
    table_name character varying(255) NOT NULL,
    metadata_location character varying(1000),
    previous_metadata_location character varying(1000),
    iceberg_type character varying(5)
);

COMMENT ON TABLE pipeline.iceberg_tables IS 'The catalog as PyIceberg and Spark read it: where the metadata of each Iceberg table is.';

CREATE TABLE pipeline.identity (
    only_one boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    system_identifier text,
    timeline integer,
    database_oid bigint,
    table_oid bigint,
    written_by xid,
    CONSTRAINT identity_only_one_check CHECK (only_one)
);

COMMENT ON TABLE pipeline.identity IS 'The id of this pipeline database. The comment of a publication at the source names it, so that the slot belongs to this database.';

COMMENT ON COLUMN pipeline.identity.system_identifier IS 'The cluster in which the log was last written.';

COMMENT ON COLUMN pipeline.identity.timeline IS 'The timeline of that cluster.';

COMMENT ON COLUMN pipeline.identity.database_oid IS 'The oid of the database.';

COMMENT ON COLUMN pipeline.identity.table_oid IS 'The oid of this table; null: not written since the upgrade. If the table has another oid, the database was restored.';

COMMENT ON COLUMN pipeline.identity.written_by IS 'The transaction that wrote this row. If the row has another xmin, the data was restored.';

CREATE TABLE pipeline.inheritance (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    child_oid bigint NOT NULL,
    parent_oid bigint NOT NULL,
    inherits boolean NOT NULL,
    seen_lsn bigint NOT NULL,
    seen_at timestamp with time zone
);

COMMENT ON TABLE pipeline.inheritance IS 'Tables that began or ceased to inherit from another one. A row of oid 0 says that the catalog was checked.';

COMMENT ON COLUMN pipeline.inheritance.seen_lsn IS 'The end of the source''s WAL after the check that found it: earlier changes have been sent up to here.';

COMMENT ON COLUMN pipeline.inheritance.seen_at IS 'When a check found it; null: the first check found it.';

ALTER TABLE pipeline.inheritance ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.inheritance_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.installed_functions (
    only_one boolean DEFAULT true NOT NULL,
    version integer NOT NULL,
    digest text NOT NULL,
    installed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT installed_functions_only_one_check CHECK (only_one)
);

COMMENT ON TABLE pipeline.installed_functions IS 'The version of the SQL functions, and the digest of their texts. No row: they are older than this table.';

CREATE TABLE pipeline.known_rows (
    source_id uuid NOT NULL,
    table_oid bigint NOT NULL,
    record_pk text NOT NULL COLLATE pg_catalog."C",
    epoch integer NOT NULL,
    commit_lsn bigint NOT NULL,
    commit_idx integer NOT NULL,
    record jsonb NOT NULL,
    exact jsonb
);

COMMENT ON TABLE pipeline.known_rows IS 'Values of rows whose last event retention has dropped: a later update may leave them out, since they are TOASTed.';

CREATE TABLE pipeline.lag_samples (
    sampled_at timestamp with time zone DEFAULT now() NOT NULL,
    source_lsn bigint,
    confirmed_lsn bigint,
    staged_lsn bigint,
    shuffled_lsn bigint,
    staged_changes bigint NOT NULL,
    events bigint NOT NULL
);

COMMENT ON TABLE pipeline.lag_samples IS 'Positions and counts every few seconds, for rates.';

CREATE TABLE pipeline.lakes (
    id uuid NOT NULL,
    directory text NOT NULL,
    events_table text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    released_at timestamp with time zone,
    folded_upto bigint,
    links boolean DEFAULT true NOT NULL,
    cannot_exchange text,
    stays jsonb DEFAULT '{}'::jsonb NOT NULL
);

COMMENT ON TABLE pipeline.lakes IS 'Folders that a log is exported to; the id is in the manifest of each.';

COMMENT ON COLUMN pipeline.lakes.released_at IS 'Since when retention no longer waits for exports to this lake; null: it waits for them.';

COMMENT ON COLUMN pipeline.lakes.folded_upto IS 'The current states have every change up to this seq; null: unknown, so the next run finds out.';

COMMENT ON COLUMN pipeline.lakes.links IS 'True if folders that readers list may be symbolic links, which the next export replaces by folders if it can.';

COMMENT ON COLUMN pipeline.lakes.cannot_exchange IS 'Why the file system of the lake cannot exchange two folders; null: it can, or no export has tried yet.';

COMMENT ON COLUMN pipeline.lakes.stays IS 'Folders that could not be exchanged, though the file system can do it, each with the reason. They keep their files.';

CREATE TABLE pipeline.partition_changes (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    root_oid bigint NOT NULL,
    leaf_oid bigint NOT NULL,
    leaf_name text NOT NULL,
    what text NOT NULL,
    bounds jsonb,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    seen_lsn bigint NOT NULL,
    events_table text,
    seq bigint,
    backfill_id bigint,
    reason text,
    settled_at timestamp with time zone,
    settled_as text,
    settled_seq bigint,
    in_doubt boolean DEFAULT false NOT NULL,
    CONSTRAINT partition_changes_check CHECK (((settled_at IS NULL) = (settled_as IS NULL))),
    CONSTRAINT partition_changes_settled_as_check CHECK ((settled_as = ANY (ARRAY['read'::text, 'compared'::text, 'kept'::text, 'empty'::text, 'whole'::text]))),
    CONSTRAINT partition_changes_what_check CHECK ((what = ANY (ARRAY['attached'::text, 'returned'::text, 'detached'::text, 'dropped'::text, 'truncated'::text])))
);

COMMENT ON TABLE pipeline.partition_changes IS 'Partitions that joined, left or were truncated: the log lacks rows, or has too many, until it is settled.';

COMMENT ON COLUMN pipeline.partition_changes.what IS 'attached: it joined. returned: it left and joined again. detached, dropped, truncated: the log keeps its rows.';

COMMENT ON COLUMN pipeline.partition_changes.seen_lsn IS 'The end of the source''s WAL after the check that found it: earlier changes have been sent up to here.';

COMMENT ON COLUMN pipeline.partition_changes.seq IS 'For a truncated partition: the event, in events_table.';

COMMENT ON COLUMN pipeline.partition_changes.backfill_id IS 'The backfill that reads or compares it; null: none does.';

COMMENT ON COLUMN pipeline.partition_changes.reason IS 'Why no backfill reads or compares a partition that joined.';

COMMENT ON COLUMN pipeline.partition_changes.settled_as IS 'read, compared: the partition by itself. kept: the log stays as it is. empty: it had no rows. whole: read or compared with the complete table.';

COMMENT ON COLUMN pipeline.partition_changes.settled_seq IS 'The newest seq of the table''s events when it was settled: from there on, the log has the rows that the partition had.';

COMMENT ON COLUMN pipeline.partition_changes.in_doubt IS 'True if the partition was attached after it was created: it is compared if the log gets rows of it that are older than the check that found it.';

ALTER TABLE pipeline.partition_changes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.partition_changes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.partition_looks (
    source_id uuid NOT NULL,
    root_oid bigint NOT NULL,
    epoch integer NOT NULL,
    after_relation integer NOT NULL,
    after_seqs jsonb NOT NULL,
    unknown boolean NOT NULL
);

COMMENT ON TABLE pipeline.partition_looks IS 'Captured tables whose leaf partitions are in pipeline.partitions, and the epoch of the first check of the catalog.';

COMMENT ON COLUMN pipeline.partition_looks.after_relation IS 'The id in pipeline.relations up to which the stream''s versions of leaf partitions were checked.';

COMMENT ON COLUMN pipeline.partition_looks.after_seqs IS 'By events table: a truncate of a leaf partition after this seq makes the log incomplete.';

COMMENT ON COLUMN pipeline.partition_looks.unknown IS 'True if it is unknown which partitions joined and left before that first check.';

CREATE TABLE pipeline.partitions (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    root_oid bigint NOT NULL,
    leaf_oid bigint NOT NULL,
    leaf_name text NOT NULL,
    bounds jsonb,
    attached_by text NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.partitions IS 'The leaf partitions of each captured partitioned table, as the last check of the source''s catalog found them.';

COMMENT ON COLUMN pipeline.partitions.leaf_name IS 'Its schema and name, not quoted.';

COMMENT ON COLUMN pipeline.partitions.bounds IS 'From the leaf up to the root: strategy, columns and types of the parent''s partition key, and the bound. Null: these do not tell which rows the leaf has.';

COMMENT ON COLUMN pipeline.partitions.attached_by IS 'xmin of the rows of pg_inherits from the leaf up to the root: if they change, the leaf left and joined again. Empty: unknown, because an earlier version stored the row.';

CREATE TABLE pipeline.published_forms (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    relation_oid bigint NOT NULL,
    form jsonb NOT NULL,
    published_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.published_forms IS 'Definitions of tables before their first change arrives, because the catalog may differ by then: of partitions, and keys beside a full replica identity.';

CREATE VIEW pipeline.reached_workers AS
 SELECT source_id,
    worker,
    epoch,
    generation,
    "position",
    commit_lsn
   FROM ( SELECT p.source_id,
            p.worker,
            p.epoch,
            p.generation,
            p."position",
            p.commit_lsn,
            COALESCE(bool_and((p."position" >= p.ends_at)) OVER (PARTITION BY p.source_id ORDER BY p.begins_at NULLS FIRST ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS reached
           FROM ( SELECT p_1.source_id,
                    p_1.worker,
                    p_1.epoch,
                    p_1.generation,
                    p_1."position",
                    p_1.commit_lsn,
                    p_1.committed_at,
                    p_1.open_commit_lsn,
                    p_1.open_changes,
                    p_1.changes,
                    p_1.transactions,
                    p_1.updated_at,
                    p_1.backend_pid,
                    p_1.backend_start,
                    c.from_lsn AS begins_at,
                    lead(c.from_lsn) OVER (PARTITION BY p_1.source_id ORDER BY c.from_lsn NULLS FIRST) AS ends_at
                   FROM (pipeline.replication_progress p_1
                     LEFT JOIN pipeline.catchup_parts c USING (source_id, worker))
                  WHERE ((p_1.worker = 0) OR (c.worker IS NOT NULL))) p) chain
  WHERE reached;

COMMENT ON VIEW pipeline.reached_workers IS 'Workers before whose part everything is staged: what they stage is next in the order of commits.';

CREATE TABLE pipeline.retention (
    events_table text NOT NULL,
    dropped_below bigint DEFAULT 1 NOT NULL,
    dropped_at timestamp with time zone DEFAULT now() NOT NULL,
    dropping oid,
    dropping_name text,
    dropping_since timestamp with time zone
);

COMMENT ON TABLE pipeline.retention IS 'How far retention has dropped an events table: every seq below dropped_below is gone, or will be at once.';

COMMENT ON COLUMN pipeline.retention.dropping IS 'The partition that is being dropped; after a crash, the next server continues with it.';

CREATE VIEW pipeline.readers AS
 WITH log AS (
         SELECT (((n.nspname)::text || '.'::text) || (t.relname)::text) AS name
           FROM (((pg_rewrite w
             JOIN pg_depend d ON (((d.classid = ('pg_rewrite'::regclass)::oid) AND (d.objid = w.oid) AND (d.refclassid = ('pg_class'::regclass)::oid) AND (d.refobjid <> w.ev_class))))
             JOIN pg_class t ON ((t.oid = d.refobjid)))
             JOIN pg_namespace n ON ((n.oid = t.relnamespace)))
          WHERE (w.ev_class = ('pipeline.events'::regclass)::oid)
         LIMIT 1
        ), consumers AS (
         SELECT c.id,
            c.name,
            c.kind,
            c.tables,
            c.actions,
            c.state,
            c.group_by,
            c.visibility,
            c.max_deliveries,
            c.max_unacknowledged,
            c."position",
            c.reader,
            c.reader_session,
            c.reader_since,
            c.created_at,
            c.updated_at,
            c.collapse,
            c.events_table,
            COALESCE(c.events_table, ( SELECT log.name
                   FROM log)) AS of_table,
            pipeline.progress_id(c.*) AS progress_id,
                CASE
                    WHEN ((c.events_table IS NOT NULL) AND (c.kind = 'cursor'::text)) THEN pipeline.passed_upto(c.*)
                    ELSE NULL::bigint
                END AS passed_upto,
            (((((
                CASE
                    WHEN (c.state = 'paused'::text) THEN 'resume it, or '::text
                    ELSE 'let it acknowledge what it has read, or '::text
                END || '`pipeline consumers reset '::text) || c.name) || '` or `pipeline consumers delete '::text) || c.name) || '`'::text) AS remedy
           FROM pipeline.consumers c
        )
 SELECT 'consumer'::text AS kind,
    c.name,
    c.of_table AS events_table,
    ( SELECT t.source_id
           FROM pipeline.events_tables t
          WHERE (t.name = c.of_table)
         LIMIT 1) AS source,
    COALESCE(c.passed_upto, ( SELECT (e.seq - 1)
           FROM pipeline.events e
          WHERE ((e.seq > c."position") AND (e.seq < (c."position" + 20000)) AND pipeline.matches(c.tables, e.source_table_schema, e.source_table_name) AND ((cardinality(c.actions) = 0) OR (e.action = ANY (c.actions))))
          ORDER BY e.seq
         LIMIT 1), GREATEST(c."position", pipeline.before_jump(c.of_table, LEAST((c."position" + 19999), ( SELECT e.seq
           FROM pipeline.events e
          ORDER BY e.seq DESC
         LIMIT 1))))) AS "position",
    c."position" AS needs_after,
    (c.reader IS NOT NULL) AS active,
    (c.state = 'paused'::text) AS paused,
    c.remedy
   FROM consumers c
  WHERE (c.kind = 'cursor'::text)
UNION ALL
 SELECT 'consumer'::text AS kind,
    c.name,
    c.of_table AS events_table,
    ( SELECT t.source_id
           FROM pipeline.events_tables t
          WHERE (t.name = c.of_table)
         LIMIT 1) AS source,
    LEAST(( SELECT (min(r.queued_seq) - 1)
           FROM public.consumer_records r
          WHERE ((r.consumer_id = c.id) AND (r.state = 'available'::text))), ( SELECT (min(r.queued_seq) - 1)
           FROM public.consumer_records r
          WHERE ((r.consumer_id = c.id) AND (r.visible_at <= statement_timestamp()) AND (r.state = ANY (ARRAY['delivered'::text, 'pending_redelivery'::text])))), COALESCE(p.folded_seq, c."position")) AS "position",
    LEAST(COALESCE(p.folded_seq, c."position"), ( SELECT (min(r.seq) - 1)
           FROM public.consumer_records r
          WHERE (c.collapse AND (r.consumer_id = c.id) AND (r.event IS NULL))), ( SELECT (r.seq - 1)
           FROM public.consumer_records r
          WHERE ((NOT c.collapse) AND (r.consumer_id = c.id) AND (r.state = 'available'::text) AND (r.event IS NULL))
          ORDER BY r.queued_seq
         LIMIT 1), ( SELECT (r.seq - 1)
           FROM public.consumer_records r
          WHERE ((NOT c.collapse) AND (r.consumer_id = c.id) AND (r.state = 'blocked'::text) AND (r.event IS NULL))
          ORDER BY r.queued_seq
         LIMIT 1), ( SELECT (min(r.seq) - 1)
           FROM public.consumer_records r
          WHERE ((NOT c.collapse) AND (r.consumer_id = c.id) AND (r.visible_at IS NOT NULL) AND (r.event IS NULL))), ( SELECT (min(t.seq) - 1)
           FROM pipeline.consumer_touches t
          WHERE (t.consumer_id = c.id))) AS needs_after,
        CASE
            WHEN (EXISTS ( SELECT
               FROM public.consumer_records r
              WHERE ((r.consumer_id = c.id) AND (r.visible_at > statement_timestamp()) AND (r.state = 'delivered'::text)))) THEN true
            ELSE NULL::boolean
        END AS active,
    (c.state = 'paused'::text) AS paused,
    c.remedy
   FROM (consumers c
     LEFT JOIN pipeline.consumer_progress p ON ((p.consumer_id = c.progress_id)))
  WHERE (c.kind = 'records'::text)
UNION ALL
 SELECT 'lake'::text AS kind,
    l.directory AS name,
    l.events_table,
    ( SELECT t.source_id
           FROM pipeline.events_tables t
          WHERE (t.name = l.events_table)
         LIMIT 1) AS source,
    has.upto AS "position",
        CASE
            WHEN ((l.released_at IS NULL) OR (l.released_at < ( SELECT e.committed_at
               FROM pipeline.exports e
              WHERE ((e.lake_id = l.id) AND (e.state = 'committed'::text))
              ORDER BY e.upto_seq DESC
             LIMIT 1))) THEN has.upto
            ELSE NULL::bigint
        END AS needs_after,
    (EXISTS ( SELECT
           FROM pipeline.advisory_locks k
          WHERE (k.key = hashtextextended(('pipeline lake '::text || (l.id)::text), (0)::bigint)))) AS active,
    false AS paused,
    (('see why with `pipeline export list`, or do without: `pipeline retention --release-lake '::text || l.directory) || '`'::text) AS remedy
   FROM (pipeline.lakes l
     CROSS JOIN LATERAL ( SELECT COALESCE(( SELECT max(e.upto_seq) AS max
                   FROM pipeline.exports e
                  WHERE ((e.lake_id = l.id) AND (e.state = 'committed'::text))), ( SELECT (r.dropped_below - 1)
                   FROM pipeline.retention r
                  WHERE (r.events_table = l.events_table)), (0)::bigint) AS upto) has)
UNION ALL
 SELECT 'backfill'::text AS kind,
    ((b.table_schema || '.'::text) || b.table_name) AS name,
    s.key AS events_table,
    b.source_id AS source,
    NULL::bigint AS "position",
    (s.value)::bigint AS needs_after,
    true AS active,
    (b.state = 'paused'::text) AS paused,
    (('let it end, or `pipeline backfill cancel '::text || b.id) || '`'::text) AS remedy
   FROM (pipeline.backfills b
     CROSS JOIN LATERAL jsonb_each_text(b.since_seqs) s(key, value))
  WHERE (b.state = ANY (ARRAY['waiting'::text, 'reading'::text, 'paused'::text]))
UNION ALL
 SELECT 'follower'::text AS kind,
    f.name,
    ( SELECT log.name
           FROM log) AS events_table,
    f.source_id AS source,
    f.seq AS "position",
    f.seq AS needs_after,
        CASE
            WHEN (f.wanted = 'paused'::text) THEN false
            ELSE NULL::boolean
        END AS active,
    (f.wanted = 'paused'::text) AS paused,
    (((
        CASE
            WHEN (f.wanted = 'paused'::text) THEN (('`pipeline followers resume '::text || f.name) || '`'::text)
            ELSE (('see why with `pipeline followers show '::text || f.name) || '`'::text)
        END || ', or do without: `pipeline followers remove '::text) || f.name) || '`'::text) AS remedy
   FROM pipeline.followers f;

COMMENT ON VIEW pipeline.readers IS 'The registry: every reader of an events table. Retention does not wait for others.';

COMMENT ON COLUMN pipeline.readers.events_table IS 'The events table that it reads; null: the default table, which does not exist yet.';

COMMENT ON COLUMN pipeline.readers."position" IS 'It has read everything up to this seq; null: it does not read in order.';

COMMENT ON COLUMN pipeline.readers.needs_after IS 'It needs every event with a larger seq; null: it needs none.';

COMMENT ON COLUMN pipeline.readers.active IS 'True if a client reads for it now; null: unknown.';

COMMENT ON COLUMN pipeline.readers.paused IS 'True if it is paused.';

COMMENT ON COLUMN pipeline.readers.remedy IS 'What to do when it keeps retention from dropping events.';

CREATE VIEW pipeline.receivable AS
 SELECT consumer_id,
    source_table_oid,
    record_pk,
    unkeyed,
    seq,
    queued_seq,
    commit_lsn,
    commit_idx,
    action,
    record,
    event,
    group_id,
    state,
    ack_id,
    visible_at,
    deliveries,
    delivered_seq,
    delivered_group,
    left_pk,
    is_alone,
    ctid AS row_id
   FROM public.consumer_records r
  WHERE ((state = 'available'::text) AND ((visible_at IS NULL) OR (visible_at <= clock_timestamp())) AND (NOT (EXISTS ( SELECT
           FROM public.consumer_records t
          WHERE ((t.consumer_id = r.consumer_id) AND (t.source_table_oid = r.source_table_oid) AND (t.action = 'truncate'::text) AND (t.state <> 'dead'::text) AND (t.seq < r.seq))))) AND ((action <> 'truncate'::text) OR (NOT (EXISTS ( SELECT
           FROM public.consumer_records o
          WHERE ((o.consumer_id = r.consumer_id) AND (o.source_table_oid = r.source_table_oid) AND (o.state <> 'dead'::text) AND (NOT ((o.state = 'blocked'::text) AND (o.event IS NOT NULL))) AND ((o.seq < r.seq) OR ((o.delivered_seq < r.seq) AND (o.visible_at > clock_timestamp()) AND (o.state <> 'available'::text))))
        UNION ALL
         SELECT
           FROM pipeline.consumer_touches o
          WHERE ((o.consumer_id = r.consumer_id) AND (o.source_table_oid = r.source_table_oid) AND (o.seq < r.seq)))))) AND ((is_alone IS NOT NULL) OR (group_id = ''::text) OR (NOT (EXISTS ( SELECT
           FROM public.consumer_records o
          WHERE ((o.consumer_id = r.consumer_id) AND (o.group_id = r.group_id) AND (o.group_id <> ''::text) AND (o.state <> 'dead'::text) AND ((o.queued_seq < r.queued_seq) OR ((o.queued_seq = r.queued_seq) AND (ROW((o.record IS NULL), o.record_pk) < ROW((r.record IS NULL), r.record_pk))) OR ((o.state <> 'available'::text) AND (o.visible_at > clock_timestamp()))))
        UNION ALL
         SELECT
           FROM public.consumer_records o
          WHERE ((o.consumer_id = r.consumer_id) AND (o.delivered_group = r.group_id) AND (o.visible_at > clock_timestamp()))
        UNION ALL
         SELECT
           FROM pipeline.consumer_touches o
          WHERE ((o.consumer_id = r.consumer_id) AND (o.group_id = r.group_id) AND (o.queued_seq < r.queued_seq)))))));

COMMENT ON VIEW pipeline.receivable IS 'Items that can be delivered now.';

CREATE TABLE pipeline.relations (
    id integer NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    relation_oid bigint NOT NULL,
    relation_schema text NOT NULL,
    relation_name text NOT NULL,
    table_oid bigint NOT NULL,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    replica_identity text NOT NULL,
    columns jsonb NOT NULL,
    key_columns text[] NOT NULL,
    from_lsn bigint NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    from_idx integer DEFAULT 0 NOT NULL,
    fingerprint jsonb,
    unique_in_root boolean,
    memberships bigint[]
);

COMMENT ON TABLE pipeline.relations IS 'The versions of each table of the source, each from an LSN on. relation_*: the replicated table or partition; table_*: its root.';

COMMENT ON COLUMN pipeline.relations.columns IS 'The columns. attnum: the number of the column; names: its names in the log, each from a commit_lsn and commit_idx on.';

COMMENT ON COLUMN pipeline.relations.from_idx IS 'commit_idx of the first change of this version, in the transaction at from_lsn: a transaction may alter a table.';

COMMENT ON COLUMN pipeline.relations.fingerprint IS 'The file, and the versions of pg_attribute rows, as last read for this version: they tell that a table was rewritten.';

COMMENT ON COLUMN pipeline.relations.unique_in_root IS 'True if no two rows of the partition root share a key; null: not checked.';

COMMENT ON COLUMN pipeline.relations.memberships IS 'oids of the catalog rows by which publications publish its updates: if all of them are new, the log lacks updates in between.';

ALTER TABLE pipeline.relations ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.relations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.rewrites (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    relation_oid bigint NOT NULL,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    columns text[] NOT NULL,
    kind text NOT NULL,
    version text NOT NULL,
    from_lsn bigint,
    from_idx integer,
    found_at timestamp with time zone DEFAULT now() NOT NULL,
    settled_at timestamp with time zone,
    CONSTRAINT rewrites_kind_check CHECK ((kind = ANY (ARRAY['type'::text, 'default'::text, 'values'::text, 'attributes'::text, 'renamed'::text])))
);

COMMENT ON TABLE pipeline.rewrites IS 'Tables whose values DDL changed without an event. For rows that were not written since, the log has the old values.';

COMMENT ON COLUMN pipeline.rewrites.version IS 'Distinguishes the rewrite from others of these columns.';

COMMENT ON COLUMN pipeline.rewrites.from_lsn IS 'commit_lsn of the first change after the rewrite, from_idx its commit_idx; null: none has arrived.';

ALTER TABLE pipeline.rewrites ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.rewrites_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.roles (
    role text NOT NULL,
    server text NOT NULL,
    pid integer NOT NULL,
    state text NOT NULL,
    reason text,
    since timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.roles IS 'The process that holds each role of serve, and its state.';

CREATE TABLE pipeline.routes (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    after_lsn bigint NOT NULL,
    events_table text NOT NULL,
    routes jsonb NOT NULL,
    first_seqs jsonb NOT NULL,
    since timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.routes IS 'The routes for transactions of an epoch after after_lsn, until the next row. events_table: the default one.';

COMMENT ON COLUMN pipeline.routes.first_seqs IS 'By events table, the seq below which older routes have decided.';

ALTER TABLE pipeline.routes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.routes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.seen_tables (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    table_oid bigint NOT NULL,
    first_seen_at timestamp with time zone
);

COMMENT ON TABLE pipeline.seen_tables IS 'Tables that the source has had in an epoch, captured or not. A row of oid 0 says that the catalog was checked.';

COMMENT ON COLUMN pipeline.seen_tables.first_seen_at IS 'When a check first found it; null: it existed before the slot, or before the epoch.';

CREATE TABLE pipeline.segments (
    id integer NOT NULL,
    source_id uuid,
    worker integer,
    state text DEFAULT 'free'::text NOT NULL,
    first_lsn bigint,
    last_lsn bigint,
    first_ordinal bigint,
    row_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT segments_state_check CHECK ((state = ANY (ARRAY['free'::text, 'filling'::text, 'full'::text, 'drained'::text])))
);

COMMENT ON TABLE pipeline.segments IS 'One row per child of wal_events: free, filling, full, or drained, which is emptied later.';

ALTER TABLE pipeline.segments ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.segments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.seq_jumps (
    events_table text NOT NULL,
    before bigint NOT NULL,
    after bigint NOT NULL,
    reason text NOT NULL,
    jumped_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE pipeline.seq_jumps IS 'Jumps: seqs that an events table skips, because a log that was lost may have had events with them.';

COMMENT ON COLUMN pipeline.seq_jumps.before IS 'The newest event of the table at that time.';

COMMENT ON COLUMN pipeline.seq_jumps.after IS 'The first seq that may follow.';

CREATE TABLE pipeline.sessions (
    id bigint NOT NULL,
    slot text NOT NULL,
    wire text NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    system_identifier text NOT NULL,
    state text DEFAULT 'making'::text NOT NULL,
    made_after bigint NOT NULL,
    "position" bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    reader text,
    reader_since timestamp with time zone,
    reason text,
    ended_at timestamp with time zone,
    dropped_at timestamp with time zone,
    address text,
    used_for text,
    CONSTRAINT sessions_state_check CHECK ((state = ANY (ARRAY['making'::text, 'ready'::text, 'ended'::text]))),
    CONSTRAINT sessions_used_for_check CHECK ((used_for = ANY (ARRAY['pages'::text, 'stream'::text])))
);

COMMENT ON TABLE pipeline.sessions IS 'Slots that clients of another system''s wire created and stream. The newest hundred of the sessions that have ended are kept.';

COMMENT ON COLUMN pipeline.sessions.wire IS 'The wire whose clients use it, a name in PIPELINE_WIRES.';

COMMENT ON COLUMN pipeline.sessions.state IS 'making: its slot may exist or not. ready: it can be streamed. ended: its slot is dropped, or is about to be.';

COMMENT ON COLUMN pipeline.sessions.made_after IS 'An LSN that the source had written before the slot was created: a slot that is confirmed before this LSN is not this one.';

COMMENT ON COLUMN pipeline.sessions."position" IS 'Everything before this LSN is acknowledged. Stored before it is confirmed to the source.';

COMMENT ON COLUMN pipeline.sessions.used_at IS 'When a stream or a snapshot request last used it.';

COMMENT ON COLUMN pipeline.sessions.reader IS 'The client that streams it, and through which server; null: none.';

COMMENT ON COLUMN pipeline.sessions.reason IS 'Why it ended.';

COMMENT ON COLUMN pipeline.sessions.dropped_at IS 'When its slot was dropped, or found not to exist; null: it may exist.';

COMMENT ON COLUMN pipeline.sessions.address IS 'The address of the client that made it; null: it is not known.';

COMMENT ON COLUMN pipeline.sessions.used_for IS 'pages: a client has read its snapshot. stream: a client has streamed it. null: no request has used it.';

ALTER TABLE pipeline.sessions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.sessions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.shuffle_progress (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    commit_lsn bigint DEFAULT 0 NOT NULL,
    committed_at timestamp with time zone,
    last_seq bigint,
    events bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.shuffle_progress IS 'The watermark: the last transaction moved to the events tables.';

CREATE TABLE pipeline.snapshot_ranges (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    backfill_id bigint NOT NULL,
    relation_oid bigint NOT NULL,
    table_oid bigint NOT NULL,
    file bigint,
    from_block bigint,
    until_block bigint,
    keys jsonb,
    state text DEFAULT 'planned'::text NOT NULL,
    token uuid,
    reader_pid integer,
    reader_start timestamp with time zone,
    segment_id integer,
    snapshot pg_snapshot,
    since_seqs jsonb,
    marker_xid xid8,
    version jsonb,
    by_key boolean,
    rows_read integer DEFAULT 0 NOT NULL,
    seen_lsn bigint,
    commit_lsn bigint,
    committed_at timestamp with time zone,
    xid bigint,
    relation_id integer,
    events_table text,
    first_seq bigint,
    last_seq bigint,
    rows_added integer DEFAULT 0 NOT NULL,
    left_out text[],
    compares boolean DEFAULT false NOT NULL,
    differences jsonb,
    departed jsonb,
    CONSTRAINT snapshot_ranges_state_check CHECK ((state = ANY (ARRAY['planned'::text, 'held'::text, 'reading'::text, 'staged'::text, 'placed'::text, 'moved'::text])))
);

COMMENT ON TABLE pipeline.snapshot_ranges IS 'Parts of tables that must still be read, or whose rows are staged and have not all become events.';

COMMENT ON COLUMN pipeline.snapshot_ranges.file IS 'pg_relation_filenode when the range was planned: another file has other blocks.';

COMMENT ON COLUMN pipeline.snapshot_ranges.keys IS 'Only rows with these keys, a JSON array of arrays of texts; null: a range of blocks.';

COMMENT ON COLUMN pipeline.snapshot_ranges.state IS 'held: not read now. staged: its rows are durable. placed: its marker has arrived, which gives it its place in the log.';

COMMENT ON COLUMN pipeline.snapshot_ranges.token IS 'Identifies the marker, a logical message of the transaction that reads the range.';

COMMENT ON COLUMN pipeline.snapshot_ranges.snapshot IS 'The snapshot of the transaction that read the range.';

COMMENT ON COLUMN pipeline.snapshot_ranges.since_seqs IS 'By events table: transactions that are not visible in snapshot, and commit before the marker, come after this seq.';

COMMENT ON COLUMN pipeline.snapshot_ranges.marker_xid IS 'The transaction that reads the range; the server asks the source if it has committed.';

COMMENT ON COLUMN pipeline.snapshot_ranges.version IS 'The version of the table when the range was read, with its fingerprint.';

COMMENT ON COLUMN pipeline.snapshot_ranges.by_key IS 'True if keys identify its rows.';

COMMENT ON COLUMN pipeline.snapshot_ranges.seen_lsn IS 'The marker committed before this LSN: a worker that has staged up to here must have placed the range.';

COMMENT ON COLUMN pipeline.snapshot_ranges.left_out IS 'For a range of keys: the keys for which the log had a newer event.';

COMMENT ON COLUMN pipeline.snapshot_ranges.compares IS 'True if no rows are read: the table is compared with the log, and ranges of keys that may differ are planned.';

COMMENT ON COLUMN pipeline.snapshot_ranges.differences IS 'Set if only rows that differ from the log become events: metadata of those events, told_seqs of the backfill, and void_epoch and void_lsn of its table. Null: all rows become events.';

COMMENT ON COLUMN pipeline.snapshot_ranges.departed IS 'Where rows have gone that left the keys of this range by updates; these are in the log up to these seqs, by events table.';

ALTER TABLE pipeline.snapshot_ranges ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.snapshot_ranges_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.snapshot_tables (
    source_id uuid NOT NULL,
    table_oid bigint NOT NULL,
    epoch integer NOT NULL,
    table_schema text NOT NULL,
    table_name text NOT NULL,
    joined bigint,
    keyed boolean NOT NULL,
    captured boolean DEFAULT true NOT NULL,
    backfill_id bigint,
    reason text,
    since_seqs jsonb DEFAULT '{}'::jsonb NOT NULL,
    events_table text,
    first_seq bigint,
    complete_seq bigint,
    told_seqs jsonb,
    reread text,
    settled_lsn bigint,
    since_lsn bigint,
    key text,
    members bigint[],
    void_epoch integer,
    void_lsn bigint,
    keeps_partitions boolean DEFAULT false NOT NULL
);

COMMENT ON TABLE pipeline.snapshot_tables IS 'Every table that is or was captured, and the seq from which on the log has it completely.';

COMMENT ON COLUMN pipeline.snapshot_tables.joined IS 'The id in captured_tables of when it last joined; null: unknown.';

COMMENT ON COLUMN pipeline.snapshot_tables.keyed IS 'True if updates and deletes are captured.';

COMMENT ON COLUMN pipeline.snapshot_tables.backfill_id IS 'The backfill that reads the complete table.';

COMMENT ON COLUMN pipeline.snapshot_tables.reason IS 'Why it is not read.';

COMMENT ON COLUMN pipeline.snapshot_tables.since_seqs IS 'By events table: after this seq its changes are in the log without a gap.';

COMMENT ON COLUMN pipeline.snapshot_tables.complete_seq IS 'From this seq on, folding the log gives the complete table; null: not yet.';

COMMENT ON COLUMN pipeline.snapshot_tables.told_seqs IS 'By events table: after this seq the log has all rows that the table ever had, except changes in gaps. Null: it never had all of them.';

COMMENT ON COLUMN pipeline.snapshot_tables.reread IS 'The kind of the backfill that starts once no other backfill of the table runs.';

COMMENT ON COLUMN pipeline.snapshot_tables.settled_lsn IS 'At this LSN of the source, rows without an event in this epoch were as the earlier epochs have them; null: unknown.';

COMMENT ON COLUMN pipeline.snapshot_tables.since_lsn IS 'The end of the source''s WAL when the table joined, or got this key: an earlier truncate does not make the log complete.';

COMMENT ON COLUMN pipeline.snapshot_tables.key IS 'Numbers of the columns that identify its rows, for each kind of partition; null: unknown.';

COMMENT ON COLUMN pipeline.snapshot_tables.members IS 'The catalog rows by which publications publish its updates: if they change, some updates were not captured. Null: unknown.';

COMMENT ON COLUMN pipeline.snapshot_tables.void_lsn IS 'Up to this LSN, in void_epoch, events identify its rows by another key, or by none; null: no event does.';

COMMENT ON COLUMN pipeline.snapshot_tables.keeps_partitions IS 'True if rows of partitions that leave stay in the log, without a warning.';

CREATE VIEW pipeline.snapshots AS
 SELECT t.source_id,
    ((t.table_schema || '.'::text) || t.table_name) AS "table",
    t.table_oid,
        CASE
            WHEN ((t.complete_seq IS NOT NULL) AND (p.id IS NULL)) THEN 'complete'::text
            WHEN (b.state = ANY (ARRAY['waiting'::text, 'reading'::text, 'paused'::text, 'failed'::text, 'cancelled'::text])) THEN b.state
            ELSE 'not read'::text
        END AS state,
        CASE
            WHEN (p.id IS NULL) THEN COALESCE(b.reason, t.reason)
            ELSE concat('partition ', p.leaf_name, ' ',
            CASE p.what
                WHEN 'attached'::text THEN 'was attached with rows'::text
                WHEN 'returned'::text THEN 'was detached and attached again'::text
                WHEN 'detached'::text THEN 'was detached (alter table … detach partition), and the log still has its rows'::text
                WHEN 'dropped'::text THEN 'was dropped (drop table), and the log still has its rows'::text
                WHEN 'truncated'::text THEN 'was truncated (truncate), and the log still has its rows'::text
                ELSE NULL::text
            END,
            CASE
                WHEN (p.others > 0) THEN format(', and %s more changes of partitions'::text, p.others)
                ELSE NULL::text
            END,
            CASE
                WHEN (b.state = ANY (ARRAY['waiting'::text, 'reading'::text, 'paused'::text])) THEN ((('; backfill '::text || b.id) ||
                CASE
                    WHEN (b.kind = 'differences'::text) THEN ' compares it'::text
                    ELSE ' reads it'::text
                END) || COALESCE((': '::text || b.reason), ''::text))
                WHEN (b.state = ANY (ARRAY['failed'::text, 'cancelled'::text])) THEN format('; backfill %s is %s%s; '::text, b.id, b.state, (': '::text || b.reason))
                WHEN (p.reason IS NOT NULL) THEN (('; '::text || p.reason) || '; '::text)
                WHEN (p.what = ANY (ARRAY['attached'::text, 'returned'::text])) THEN '; its rows are about to be read'::text
                ELSE '; '::text
            END,
            CASE
                WHEN (((b.state IS NULL) OR (b.state = ANY (ARRAY['failed'::text, 'cancelled'::text]))) AND ((p.what <> ALL (ARRAY['attached'::text, 'returned'::text])) OR (p.reason IS NOT NULL) OR (b.state IS NOT NULL))) THEN format('run `pipeline backfill start %1$s.%2$s --differences`, or keep the log as it is: `pipeline backfill settle %1$s.%2$s --keep`'::text, t.table_schema, t.table_name)
                ELSE NULL::text
            END)
        END AS reason,
    b.id AS backfill,
    COALESCE(b.ranges_done, 0) AS ranges_done,
    COALESCE(b.ranges_all, 0) AS ranges_all,
    COALESCE(b.rows_added, (0)::bigint) AS rows,
    b.rows_estimated,
    COALESCE(t.events_table, b.events_table) AS events_table,
    COALESCE(t.first_seq, b.first_seq) AS first_seq,
        CASE
            WHEN (p.id IS NULL) THEN GREATEST(t.complete_seq,
            CASE
                WHEN (t.complete_seq IS NOT NULL) THEN ( SELECT max(s.settled_seq) AS max
                   FROM pipeline.partition_changes s
                  WHERE ((s.source_id = t.source_id) AND (s.root_oid = t.table_oid)))
                ELSE NULL::bigint
            END)
            ELSE NULL::bigint
        END AS complete_seq,
    b.kind
   FROM ((pipeline.snapshot_tables t
     LEFT JOIN LATERAL ( SELECT c.id,
            c.leaf_name,
            c.what,
            c.reason,
            c.backfill_id,
            (count(*) OVER () - 1) AS others
           FROM pipeline.partition_changes c
          WHERE ((c.source_id = t.source_id) AND (c.root_oid = t.table_oid) AND (c.settled_at IS NULL) AND (t.complete_seq IS NOT NULL))
          ORDER BY (c.backfill_id IS NOT NULL), c.id
         LIMIT 1) p ON (true))
     LEFT JOIN pipeline.backfills b ON ((b.id =
        CASE
            WHEN (p.id IS NULL) THEN t.backfill_id
            ELSE p.backfill_id
        END)))
  WHERE t.captured;

COMMENT ON VIEW pipeline.snapshots IS 'Every captured table. From complete_seq on, folding the log gives the complete table.';

COMMENT ON COLUMN pipeline.snapshots.state IS 'complete, waiting (for older transactions), reading, paused, failed, cancelled, or not read.';

COMMENT ON COLUMN pipeline.snapshots.reason IS 'Why the table is not complete: what its backfill waits for, why it failed, why the table is not read, what could not be known, or which partition joined or left.';

COMMENT ON COLUMN pipeline.snapshots.rows IS 'Rows that became events: all with action read, or in a comparison only what differed.';

COMMENT ON COLUMN pipeline.snapshots.first_seq IS 'Seq of the first of those events; null: there is none.';

COMMENT ON COLUMN pipeline.snapshots.complete_seq IS 'From this seq on, folding the log gives the complete table; null: not yet, or no longer, because a partition joined or left.';

COMMENT ON COLUMN pipeline.snapshots.kind IS 'The kind of the backfill: initial, asked, or differences, which appends only what differs from the log.';

CREATE TABLE pipeline.source_stops (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    commit_lsn bigint NOT NULL,
    committed_at timestamp with time zone NOT NULL,
    xid bigint NOT NULL,
    changes bigint NOT NULL,
    cause text NOT NULL,
    sqlstate text NOT NULL,
    stopped_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    requested_at timestamp with time zone,
    skipped_at timestamp with time zone
);

COMMENT ON TABLE pipeline.source_stops IS 'Transactions that the source could not send. The server stops there until the position is beyond commit_lsn.';

COMMENT ON COLUMN pipeline.source_stops.changes IS 'The number of its changes that arrived before the one that did not.';

COMMENT ON COLUMN pipeline.source_stops.requested_at IS 'When a user asked to skip it.';

CREATE TABLE pipeline.sources (
    id uuid NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    system_identifier text NOT NULL,
    database_name text NOT NULL,
    slot text NOT NULL,
    publications jsonb DEFAULT '{}'::jsonb NOT NULL,
    options jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    timeline integer,
    published jsonb DEFAULT '{}'::jsonb NOT NULL,
    unmatched text,
    reads_tables boolean,
    reads_from timestamp with time zone,
    rereads_epoch integer
);

COMMENT ON TABLE pipeline.sources IS 'The databases from which the server replicates.';

COMMENT ON COLUMN pipeline.sources.publications IS 'The publications that the server created: name -> pg_publication.oid.';

COMMENT ON COLUMN pipeline.sources.options IS 'START_REPLICATION options: commit_idx is stable only while they do not change.';

COMMENT ON COLUMN pipeline.sources.timeline IS 'The timeline of the source at the last connection; null: there was none.';

COMMENT ON COLUMN pipeline.sources.published IS 'The content of the publications in use at the last check: a change that narrows it is a gap.';

COMMENT ON COLUMN pipeline.sources.unmatched IS 'Why nothing can be captured: PIPELINE_TABLES matches no existing table. Null: it matches some.';

COMMENT ON COLUMN pipeline.sources.reads_tables IS 'True if tables that join are read. False: those that the next check finds are not read; then it becomes true.';

COMMENT ON COLUMN pipeline.sources.reads_from IS 'Tables that joined after this time are read, even if that next check finds them.';

COMMENT ON COLUMN pipeline.sources.rereads_epoch IS 'The epoch at whose beginning the captured tables must be compared with the log; null: done, or not needed.';

CREATE TABLE pipeline.verifications (
    id bigint NOT NULL,
    source_id uuid NOT NULL,
    asked_by text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone DEFAULT now() NOT NULL,
    share double precision NOT NULL,
    tables_compared integer NOT NULL,
    tables_refused integer NOT NULL,
    rows bigint NOT NULL,
    differing bigint NOT NULL,
    unknown bigint NOT NULL,
    verified_through bigint,
    tables jsonb NOT NULL,
    CONSTRAINT verifications_asked_by_check CHECK ((asked_by = ANY (ARRAY['command'::text, 'schedule'::text])))
);

COMMENT ON TABLE pipeline.verifications IS 'The newest comparisons of the log''s content with the source.';

COMMENT ON COLUMN pipeline.verifications.share IS 'The share of each table''s rows that was compared; 1: all.';

COMMENT ON COLUMN pipeline.verifications.differing IS 'Rows that differ between the source and the log.';

COMMENT ON COLUMN pipeline.verifications.unknown IS 'Rows that could not be compared completely, because the log lacks values of them.';

COMMENT ON COLUMN pipeline.verifications.verified_through IS 'Everything that committed before this LSN of the source was compared; null: nothing was.';

COMMENT ON COLUMN pipeline.verifications.tables IS 'For each table its name, state, reason, and numbers; no values.';

ALTER TABLE pipeline.verifications ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.verifications_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.wal_written (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    lsn bigint NOT NULL,
    written_at timestamp with time zone NOT NULL,
    spilled_bytes bigint
);

COMMENT ON TABLE pipeline.wal_written IS 'How far the source had written its WAL, and when by its clock. Older rows are farther apart.';

COMMENT ON COLUMN pipeline.wal_written.written_at IS 'The last moment at which nothing beyond lsn was written yet.';

COMMENT ON COLUMN pipeline.wal_written.spilled_bytes IS 'Bytes that decoding for the slot had spilled to the disk of the source by then.';

CREATE TABLE pipeline.walstream_sessions (
    id bigint NOT NULL,
    claim text NOT NULL,
    server text NOT NULL,
    peer text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    sent_seq bigint,
    unacknowledged bigint DEFAULT 0 NOT NULL,
    ended_at timestamp with time zone,
    acknowledged_seq bigint,
    hold_seconds double precision,
    counted_at timestamp with time zone,
    highest_seq bigint
);

COMMENT ON TABLE pipeline.walstream_sessions IS 'Sessions of walstream''s clients, and holds: a session that has ended holds the position of the consumer for 60 s.';

COMMENT ON COLUMN pipeline.walstream_sessions.claim IS 'reader_session of consumer walstream when it began.';

COMMENT ON COLUMN pipeline.walstream_sessions.sent_seq IS 'The last event that it was sent, some seconds ago.';

COMMENT ON COLUMN pipeline.walstream_sessions.unacknowledged IS 'Events that it was sent and has not acknowledged, some seconds ago.';

COMMENT ON COLUMN pipeline.walstream_sessions.ended_at IS 'When it ended, and became a hold; null: its client is connected.';

COMMENT ON COLUMN pipeline.walstream_sessions.acknowledged_seq IS 'The session needs nothing up to this seq; null: an older version began it.';

COMMENT ON COLUMN pipeline.walstream_sessions.hold_seconds IS 'The remaining seconds of the hold, in which the wire is served; null: not counted yet.';

COMMENT ON COLUMN pipeline.walstream_sessions.counted_at IS 'When hold_seconds was stored last.';

COMMENT ON COLUMN pipeline.walstream_sessions.highest_seq IS 'The highest acknowledged_seq of any session or hold since this hold began.';

ALTER TABLE pipeline.walstream_sessions ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME pipeline.walstream_sessions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE pipeline.ways (
    source_id uuid NOT NULL,
    way text NOT NULL,
    reason text DEFAULT ''::text NOT NULL,
    changes bigint DEFAULT 0 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE pipeline.ways IS 'How many changes of the stream were written to the log at once, or staged and moved, and why.';

CREATE TABLE pipeline.wire_counters (
    wire text NOT NULL,
    name text NOT NULL,
    count bigint NOT NULL
);

COMMENT ON TABLE pipeline.wire_counters IS 'Counters of what has happened on the wires of other systems'' clients.';

CREATE TABLE pipeline.worker_load (
    source_id uuid NOT NULL,
    epoch integer NOT NULL,
    moved_lsn bigint NOT NULL,
    starved real NOT NULL,
    blocked real NOT NULL,
    sending real NOT NULL,
    measured_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (fillfactor='50');

COMMENT ON TABLE pipeline.worker_load IS 'Reasons for which the worker waited in the last seconds; written only while rows wait to be staged or moved.';

COMMENT ON COLUMN pipeline.worker_load.moved_lsn IS 'Everything before this LSN was in the events tables at some moment.';

COMMENT ON COLUMN pipeline.worker_load.starved IS 'Share of the time in which it waited for the source.';

COMMENT ON COLUMN pipeline.worker_load.blocked IS 'Share of the time in which it waited for its rows to be staged.';

COMMENT ON COLUMN pipeline.worker_load.sending IS 'Share of the samples in which the walsender could not send more.';

CREATE SEQUENCE public.sequin_events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.sequin_events_seq_seq OWNED BY public.sequin_events.seq;

CREATE TABLE public.wal_events (
    commit_lsn bigint NOT NULL,
    commit_idx integer NOT NULL,
    ordinal bigint NOT NULL,
    relation_id integer NOT NULL,
    xid bigint NOT NULL,
    committed_at timestamp with time zone NOT NULL,
    action text NOT NULL,
    record_pk text NOT NULL,
    record text NOT NULL,
    changes text,
    exact text,
    unchanged_columns text,
    transaction_annotations text,
    previous_pk text,
    metadata text
);
ALTER TABLE ONLY public.wal_events ALTER COLUMN record SET STORAGE EXTERNAL;
ALTER TABLE ONLY public.wal_events ALTER COLUMN changes SET STORAGE EXTERNAL;

COMMENT ON TABLE public.wal_events IS 'Staging: raw changes in the order workers read them. Private; its rows live in children, one per segment.';

COMMENT ON COLUMN public.wal_events.ordinal IS 'Counts rows in the order of (commit_lsn, commit_idx), without gaps in a segment.';

COMMENT ON COLUMN public.wal_events.previous_pk IS 'record_pk before an update that changed the key; null if it is the same.';

COMMENT ON COLUMN public.wal_events.metadata IS 'Marks of the event, as JSON; null for a change that the source has sent.';

ALTER TABLE ONLY public.sequin_events ALTER COLUMN seq SET DEFAULT nextval('public.sequin_events_seq_seq'::regclass);

ALTER TABLE ONLY pipeline.adopted_tables
    ADD CONSTRAINT adopted_tables_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.adoptions
    ADD CONSTRAINT adoptions_pkey PRIMARY KEY (source_id);

ALTER TABLE ONLY pipeline.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY pipeline.backfills
    ADD CONSTRAINT backfills_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.captured_tables
    ADD CONSTRAINT captured_tables_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.carried_transactions
    ADD CONSTRAINT carried_transactions_pkey PRIMARY KEY (source_id, commit_lsn, committed_at);

ALTER TABLE ONLY pipeline.catchup_parts
    ADD CONSTRAINT catchup_parts_pkey PRIMARY KEY (source_id, worker);

ALTER TABLE ONLY pipeline.consumer_progress
    ADD CONSTRAINT consumer_progress_pkey PRIMARY KEY (consumer_id);

ALTER TABLE ONLY pipeline.consumer_touches
    ADD CONSTRAINT consumer_touches_pkey PRIMARY KEY (consumer_id, source_table_oid, record_pk, unkeyed, seq);

ALTER TABLE ONLY pipeline.consumers
    ADD CONSTRAINT consumers_name_key UNIQUE (name);

ALTER TABLE ONLY pipeline.consumers
    ADD CONSTRAINT consumers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.epochs
    ADD CONSTRAINT epochs_pkey PRIMARY KEY (source_id, epoch);

ALTER TABLE ONLY pipeline.events_tables
    ADD CONSTRAINT events_tables_pkey PRIMARY KEY (source_id, name);

ALTER TABLE ONLY pipeline.export_compactions
    ADD CONSTRAINT export_compactions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_datasets
    ADD CONSTRAINT export_datasets_pkey PRIMARY KEY (lake_id, dataset);

ALTER TABLE ONLY pipeline.export_files
    ADD CONSTRAINT export_files_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_iceberg_commits
    ADD CONSTRAINT export_iceberg_commits_pkey PRIMARY KEY (lake_id, number);

ALTER TABLE ONLY pipeline.export_iceberg
    ADD CONSTRAINT export_iceberg_pkey PRIMARY KEY (lake_id);

ALTER TABLE ONLY pipeline.export_iceberg_tables
    ADD CONSTRAINT export_iceberg_tables_pkey PRIMARY KEY (lake_id, namespace, name);

ALTER TABLE ONLY pipeline.export_iceberg_written
    ADD CONSTRAINT export_iceberg_written_pkey PRIMARY KEY (lake_id, path);

ALTER TABLE ONLY pipeline.export_replaced
    ADD CONSTRAINT export_replaced_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_requests
    ADD CONSTRAINT export_requests_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_runs
    ADD CONSTRAINT export_runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_schemas
    ADD CONSTRAINT export_schemas_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_states
    ADD CONSTRAINT export_states_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_tables
    ADD CONSTRAINT export_tables_lake_id_source_id_source_epoch_table_oid_key UNIQUE (lake_id, source_id, source_epoch, table_oid);

ALTER TABLE ONLY pipeline.export_tables
    ADD CONSTRAINT export_tables_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.export_written
    ADD CONSTRAINT export_written_pkey PRIMARY KEY (lake_id, path);

ALTER TABLE ONLY pipeline.exports
    ADD CONSTRAINT exports_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.follower_tables
    ADD CONSTRAINT follower_tables_pkey PRIMARY KEY (follower_id, table_oid);

ALTER TABLE ONLY pipeline.followers
    ADD CONSTRAINT followers_name_key UNIQUE (name);

ALTER TABLE ONLY pipeline.followers
    ADD CONSTRAINT followers_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.iceberg_namespace_properties
    ADD CONSTRAINT iceberg_namespace_properties_pkey PRIMARY KEY (catalog_name, namespace, property_key);

ALTER TABLE ONLY pipeline.iceberg_tables
    ADD CONSTRAINT iceberg_tables_pkey PRIMARY KEY (catalog_name, table_namespace, table_name);

ALTER TABLE ONLY pipeline.identity
    ADD CONSTRAINT identity_pkey PRIMARY KEY (only_one);

ALTER TABLE ONLY pipeline.inheritance
    ADD CONSTRAINT inheritance_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.installed_functions
    ADD CONSTRAINT installed_functions_pkey PRIMARY KEY (only_one);

ALTER TABLE ONLY pipeline.known_rows
    ADD CONSTRAINT known_rows_pkey PRIMARY KEY (source_id, table_oid, record_pk);

ALTER TABLE ONLY pipeline.lag_samples
    ADD CONSTRAINT lag_samples_pkey PRIMARY KEY (sampled_at);

ALTER TABLE ONLY pipeline.lakes
    ADD CONSTRAINT lakes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.partition_changes
    ADD CONSTRAINT partition_changes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.partition_looks
    ADD CONSTRAINT partition_looks_pkey PRIMARY KEY (source_id, root_oid);

ALTER TABLE ONLY pipeline.partitions
    ADD CONSTRAINT partitions_pkey PRIMARY KEY (source_id, root_oid, leaf_oid);

ALTER TABLE ONLY pipeline.published_forms
    ADD CONSTRAINT published_forms_pkey PRIMARY KEY (source_id, epoch, relation_oid);

ALTER TABLE ONLY pipeline.relations
    ADD CONSTRAINT relations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.replication_progress
    ADD CONSTRAINT replication_progress_pkey PRIMARY KEY (source_id, worker);

ALTER TABLE ONLY pipeline.retention
    ADD CONSTRAINT retention_pkey PRIMARY KEY (events_table);

ALTER TABLE ONLY pipeline.rewrites
    ADD CONSTRAINT rewrites_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.rewrites
    ADD CONSTRAINT rewrites_source_id_epoch_relation_oid_kind_version_key UNIQUE (source_id, epoch, relation_oid, kind, version);

ALTER TABLE ONLY pipeline.roles
    ADD CONSTRAINT roles_pkey PRIMARY KEY (role);

ALTER TABLE ONLY pipeline.routes
    ADD CONSTRAINT routes_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.seen_tables
    ADD CONSTRAINT seen_tables_pkey PRIMARY KEY (source_id, epoch, table_oid);

ALTER TABLE ONLY pipeline.segments
    ADD CONSTRAINT segments_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.seq_jumps
    ADD CONSTRAINT seq_jumps_pkey PRIMARY KEY (events_table, after);

ALTER TABLE ONLY pipeline.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.shuffle_progress
    ADD CONSTRAINT shuffle_progress_pkey PRIMARY KEY (source_id);

ALTER TABLE ONLY pipeline.snapshot_ranges
    ADD CONSTRAINT snapshot_ranges_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.snapshot_tables
    ADD CONSTRAINT snapshot_tables_pkey PRIMARY KEY (source_id, table_oid);

ALTER TABLE ONLY pipeline.source_stops
    ADD CONSTRAINT source_stops_pkey PRIMARY KEY (source_id, epoch, commit_lsn);

ALTER TABLE ONLY pipeline.sources
    ADD CONSTRAINT sources_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.verifications
    ADD CONSTRAINT verifications_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.wal_written
    ADD CONSTRAINT wal_written_pkey PRIMARY KEY (source_id, epoch, lsn);

ALTER TABLE ONLY pipeline.walstream_sessions
    ADD CONSTRAINT walstream_sessions_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.ways
    ADD CONSTRAINT ways_pkey PRIMARY KEY (source_id, way, reason);

ALTER TABLE ONLY pipeline.wire_counters
    ADD CONSTRAINT wire_counters_pkey PRIMARY KEY (wire, name);

ALTER TABLE ONLY pipeline.worker_load
    ADD CONSTRAINT worker_load_pkey PRIMARY KEY (source_id);

ALTER TABLE ONLY public.consumer_records
    ADD CONSTRAINT consumer_records_pkey PRIMARY KEY (consumer_id, source_table_oid, record_pk, unkeyed);

ALTER TABLE ONLY public.sequin_events
    ADD CONSTRAINT sequin_events_pkey PRIMARY KEY (seq);

CREATE INDEX adopted_tables_next_idx ON pipeline.adopted_tables USING btree (source_id, first_seq);

CREATE UNIQUE INDEX backfills_open_idx ON pipeline.backfills USING btree (source_id, table_oid) WHERE (state = ANY (ARRAY['waiting'::text, 'reading'::text, 'paused'::text]));

CREATE INDEX backfills_table_idx ON pipeline.backfills USING btree (source_id, table_oid, id);

CREATE UNIQUE INDEX captured_tables_open ON pipeline.captured_tables USING btree (source_id, table_oid) WHERE (left_at IS NULL);

CREATE INDEX dead_letters_open_idx ON pipeline.dead_letters USING btree (state, id) WHERE (state = ANY (ARRAY['parked'::text, 'retrying'::text]));

CREATE INDEX export_compactions_newest_idx ON pipeline.export_compactions USING btree (lake_id, id);

CREATE INDEX export_compactions_unfinished_idx ON pipeline.export_compactions USING btree (lake_id, state) WHERE (state = ANY (ARRAY['writing'::text, 'switched'::text]));

CREATE INDEX export_files_dataset_idx ON pipeline.export_files USING btree (lake_id, dataset, last_seq);

CREATE INDEX export_files_day_idx ON pipeline.export_files USING btree (lake_id, table_oid, day) WHERE (day IS NOT NULL);

CREATE INDEX export_files_export_idx ON pipeline.export_files USING btree (export_id);

CREATE INDEX export_files_merged_idx ON pipeline.export_files USING btree (lake_id, last_seq) WHERE (merged > 0);

CREATE INDEX export_files_open_idx ON pipeline.export_files USING btree (lake_id, dataset) WHERE (part IS NULL);

CREATE INDEX export_files_pending_idx ON pipeline.export_files USING btree (lake_id, day) WHERE ((day IS NOT NULL) AND (merged < 2));

CREATE INDEX export_files_table_idx ON pipeline.export_files USING btree (lake_id, table_oid, last_seq);

CREATE INDEX export_replaced_idx ON pipeline.export_replaced USING btree (lake_id, replaced_at);

CREATE INDEX export_runs_running_idx ON pipeline.export_runs USING btree (id) WHERE (state = 'running'::text);

CREATE INDEX export_schemas_newest_idx ON pipeline.export_schemas USING btree (lake_id, dataset, version, id);

CREATE UNIQUE INDEX export_states_once_idx ON pipeline.export_states USING btree (lake_id, dataset, seq) WHERE (state = 'committed'::text);

CREATE INDEX export_states_superseded_idx ON pipeline.export_states USING btree (lake_id, superseded_at) WHERE (superseded_at IS NOT NULL);

CREATE INDEX export_states_table_idx ON pipeline.export_states USING btree (table_id, seq) WHERE (state = 'committed'::text);

CREATE INDEX export_states_unfinished_idx ON pipeline.export_states USING btree (lake_id) WHERE (state = 'writing'::text);

CREATE INDEX export_tables_dataset_idx ON pipeline.export_tables USING btree (lake_id, dataset);

CREATE INDEX export_tables_waiting_idx ON pipeline.export_tables USING btree (lake_id, waits_since) WHERE (waits_since IS NOT NULL);

CREATE INDEX exports_newest_idx ON pipeline.exports USING btree (lake_id, upto_seq) WHERE (state = 'committed'::text);

CREATE UNIQUE INDEX exports_once_idx ON pipeline.exports USING btree (lake_id, after_seq) WHERE (state = ANY (ARRAY['publishing'::text, 'committed'::text]));

CREATE INDEX exports_unfinished_idx ON pipeline.exports USING btree (lake_id, id) WHERE (state = ANY (ARRAY['writing'::text, 'publishing'::text]));

CREATE INDEX exports_unlisted_idx ON pipeline.exports USING btree (lake_id, id) WHERE (files IS NOT NULL);

CREATE UNIQUE INDEX followers_password_idx ON pipeline.followers USING btree (upper(regexp_replace(name, '[^A-Za-z0-9]'::text, '_'::text, 'g'::text)));

COMMENT ON INDEX pipeline.followers_password_idx IS 'No two followers may have the same password variable.';

CREATE INDEX inheritance_child ON pipeline.inheritance USING btree (source_id, child_oid, parent_oid);

CREATE INDEX partition_changes_open ON pipeline.partition_changes USING btree (source_id, root_oid) WHERE (settled_at IS NULL);

CREATE INDEX partition_changes_root ON pipeline.partition_changes USING btree (source_id, root_oid, leaf_oid);

CREATE INDEX relations_history_idx ON pipeline.relations USING btree (source_id, relation_oid, id);

CREATE INDEX relations_name_idx ON pipeline.relations USING btree (table_schema, table_name, id);

CREATE INDEX relations_table_idx ON pipeline.relations USING btree (table_oid, source_id, epoch);

CREATE INDEX routes_newest_idx ON pipeline.routes USING btree (source_id, id);

CREATE INDEX sessions_kept_idx ON pipeline.sessions USING btree (source_id, id) WHERE (dropped_at IS NULL);

CREATE UNIQUE INDEX sessions_live_idx ON pipeline.sessions USING btree (slot) WHERE (state <> 'ended'::text);

CREATE INDEX snapshot_ranges_backfill_idx ON pipeline.snapshot_ranges USING btree (backfill_id, state);

CREATE INDEX snapshot_ranges_placed_idx ON pipeline.snapshot_ranges USING btree (source_id, commit_lsn) WHERE (state = 'placed'::text);

CREATE INDEX snapshot_ranges_state_idx ON pipeline.snapshot_ranges USING btree (source_id, state, id);

CREATE UNIQUE INDEX snapshot_ranges_token_idx ON pipeline.snapshot_ranges USING btree (token);

CREATE INDEX verifications_source_idx ON pipeline.verifications USING btree (source_id, id);

CREATE INDEX consumer_records_ack_idx ON public.consumer_records USING btree (ack_id) WHERE (ack_id IS NOT NULL);

CREATE INDEX consumer_records_blocked_idx ON public.consumer_records USING btree (consumer_id, queued_seq) WHERE (state = 'blocked'::text);

CREATE INDEX consumer_records_dead_idx ON public.consumer_records USING btree (consumer_id, seq) WHERE (state = 'dead'::text);

CREATE INDEX consumer_records_delivered_group_idx ON public.consumer_records USING btree (consumer_id, delivered_group) WHERE (delivered_group IS NOT NULL);

CREATE INDEX consumer_records_group_idx ON public.consumer_records USING btree (consumer_id, group_id, queued_seq) WHERE ((group_id <> ''::text) AND (state <> 'dead'::text));

CREATE INDEX consumer_records_left_idx ON public.consumer_records USING btree (consumer_id, source_table_oid, left_pk, unkeyed) WHERE (left_pk IS NOT NULL);

CREATE INDEX consumer_records_queue_idx ON public.consumer_records USING btree (consumer_id, queued_seq) WHERE (state = 'available'::text);

CREATE INDEX consumer_records_truncates_idx ON public.consumer_records USING btree (consumer_id, source_table_oid, seq) WHERE ((action = 'truncate'::text) AND (state <> 'dead'::text));

CREATE INDEX consumer_records_visible_idx ON public.consumer_records USING btree (consumer_id, visible_at) WHERE (visible_at IS NOT NULL);

CREATE INDEX sequin_events_row_history_idx ON ONLY public.sequin_events USING btree (source_database_id, source_table_oid, record_pk, seq);

CREATE TRIGGER consumers_keep_collapse BEFORE UPDATE OF collapse ON pipeline.consumers FOR EACH ROW WHEN ((old.collapse IS DISTINCT FROM new.collapse)) EXECUTE FUNCTION pipeline.keep_collapse();

CREATE TRIGGER consumers_refuse_unaware BEFORE UPDATE OF reader_session ON pipeline.consumers FOR EACH ROW WHEN (((old.events_table IS NOT NULL) AND (new.reader_session IS NOT NULL))) EXECUTE FUNCTION pipeline.refuse_unaware_reader();

CREATE TRIGGER shuffle_progress_keep_turn AFTER UPDATE OF commit_lsn, epoch ON pipeline.shuffle_progress FOR EACH ROW WHEN (((new.commit_lsn <> old.commit_lsn) OR (new.epoch <> old.epoch))) EXECUTE FUNCTION pipeline.keep_turn();

ALTER TABLE ONLY pipeline.backfills
    ADD CONSTRAINT backfills_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.carried_transactions
    ADD CONSTRAINT carried_transactions_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.catchup_parts
    ADD CONSTRAINT catchup_parts_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.dead_letters
    ADD CONSTRAINT dead_letters_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.epochs
    ADD CONSTRAINT epochs_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.events_tables
    ADD CONSTRAINT events_tables_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.export_datasets
    ADD CONSTRAINT export_datasets_lake_id_fkey FOREIGN KEY (lake_id) REFERENCES pipeline.lakes(id);

ALTER TABLE ONLY pipeline.export_files
    ADD CONSTRAINT export_files_export_id_fkey FOREIGN KEY (export_id) REFERENCES pipeline.exports(id);

ALTER TABLE ONLY pipeline.export_files
    ADD CONSTRAINT export_files_lake_id_fkey FOREIGN KEY (lake_id) REFERENCES pipeline.lakes(id);

ALTER TABLE ONLY pipeline.export_files
    ADD CONSTRAINT export_files_schema_id_fkey FOREIGN KEY (schema_id) REFERENCES pipeline.export_schemas(id);

ALTER TABLE ONLY pipeline.export_replaced
    ADD CONSTRAINT export_replaced_lake_id_fkey FOREIGN KEY (lake_id) REFERENCES pipeline.lakes(id);

ALTER TABLE ONLY pipeline.export_schemas
    ADD CONSTRAINT export_schemas_lake_id_fkey FOREIGN KEY (lake_id) REFERENCES pipeline.lakes(id);

ALTER TABLE ONLY pipeline.export_states
    ADD CONSTRAINT export_states_lake_id_fkey FOREIGN KEY (lake_id) REFERENCES pipeline.lakes(id);

ALTER TABLE ONLY pipeline.export_tables
    ADD CONSTRAINT export_tables_lake_id_fkey FOREIGN KEY (lake_id) REFERENCES pipeline.lakes(id);

ALTER TABLE ONLY pipeline.exports
    ADD CONSTRAINT exports_lake_id_fkey FOREIGN KEY (lake_id) REFERENCES pipeline.lakes(id);

ALTER TABLE ONLY pipeline.exports
    ADD CONSTRAINT exports_run_id_fkey FOREIGN KEY (run_id) REFERENCES pipeline.export_runs(id);

ALTER TABLE ONLY pipeline.follower_tables
    ADD CONSTRAINT follower_tables_follower_id_fkey FOREIGN KEY (follower_id) REFERENCES pipeline.followers(id) ON DELETE CASCADE;

ALTER TABLE ONLY pipeline.followers
    ADD CONSTRAINT followers_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.partition_changes
    ADD CONSTRAINT partition_changes_backfill_id_fkey FOREIGN KEY (backfill_id) REFERENCES pipeline.backfills(id);

ALTER TABLE ONLY pipeline.published_forms
    ADD CONSTRAINT published_forms_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.relations
    ADD CONSTRAINT relations_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.replication_progress
    ADD CONSTRAINT replication_progress_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.rewrites
    ADD CONSTRAINT rewrites_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.routes
    ADD CONSTRAINT routes_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.segments
    ADD CONSTRAINT segments_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.sessions
    ADD CONSTRAINT sessions_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.shuffle_progress
    ADD CONSTRAINT shuffle_progress_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.snapshot_ranges
    ADD CONSTRAINT snapshot_ranges_backfill_id_fkey FOREIGN KEY (backfill_id) REFERENCES pipeline.backfills(id);

ALTER TABLE ONLY pipeline.snapshot_ranges
    ADD CONSTRAINT snapshot_ranges_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.snapshot_tables
    ADD CONSTRAINT snapshot_tables_backfill_id_fkey FOREIGN KEY (backfill_id) REFERENCES pipeline.backfills(id);

ALTER TABLE ONLY pipeline.snapshot_tables
    ADD CONSTRAINT snapshot_tables_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.source_stops
    ADD CONSTRAINT source_stops_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.verifications
    ADD CONSTRAINT verifications_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

ALTER TABLE ONLY pipeline.ways
    ADD CONSTRAINT ways_source_id_fkey FOREIGN KEY (source_id) REFERENCES pipeline.sources(id);

REVOKE ALL ON FUNCTION pipeline.ack(consumer text, ack_ids uuid[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.advance(consumer text, seq bigint, session text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.bury(items public.consumer_records[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.check_consumer(made pipeline.consumers) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.commit_durably() FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.consumer_of(consumer text, kind text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.create_consumer(name text, kind text, tables text[], actions text[], start text, group_by text[], visibility interval, max_deliveries integer, max_unacknowledged integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.create_consumer(name text, collapse boolean, kind text, tables text[], actions text[], start text, group_by text[], visibility interval, max_deliveries integer, max_unacknowledged integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.create_consumer(name text, events_table regclass, collapse boolean, kind text, tables text[], actions text[], start text, group_by text[], visibility interval, max_deliveries integer, max_unacknowledged integer) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.dead_records(consumer text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.default_events_table() FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.discard_dead(consumer text, seqs bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.drop_consumer(name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.event_of(item public.consumer_records) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.events_relation(events_table text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.extend(consumer text, ack_ids uuid[], visibility interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.find_events_table(events_table text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.give_back(consumer text, ack_ids uuid[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.hand_out(consumer pipeline.consumers, upto integer, visibility interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.inserted_at(events_table text, from_seq bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.keep_collapse() FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.keep_turn() FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.log_floor() FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.log_floor(events_table text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.log_head() FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.log_head(events_table text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.log_place(OUT system_identifier text, OUT timeline integer, OUT database_oid bigint, OUT table_oid bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.matches(tables text[], schema_name text, table_name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.move_up(gone public.consumer_records[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.nack(consumer text, ack_ids uuid[], delay interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.name_of_events_table(events_table regclass) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.next_visible(consumer text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.partition_truncates(events_table text, source uuid, after bigint, since bigint, tables bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.passed_upto(reader pipeline.consumers) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.pause_consumer(name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.progress_id(reader pipeline.consumers) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.receive(consumer text, max integer, visibility interval) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.refuse_unaware_reader() FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.release_expired(consumer pipeline.consumers) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.require_events_table(reader pipeline.consumers) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.require_read_committed(me pipeline.consumers) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.reset_consumer(name text, start text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.resume_consumer(name text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.retry_dead(consumer text, seqs bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.retry_in_line(me pipeline.consumers, seqs bigint[]) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.seqs_between(events_table text, after bigint, upto bigint) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.set_consumer_state(consumer text, state text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.start_seq(start text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.start_seq(start text, events_table text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.visibility_of(consumer text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.wake_consumer(consumer text) FROM PUBLIC;

REVOKE ALL ON FUNCTION pipeline.with_events(reader pipeline.consumers, handed public.consumer_records[]) FROM PUBLIC;
