-- Deliver the next items of a consumer.
-- The settings make Postgres read items in the order of the queue, and find them by their keys. The statistics of a
-- queue are always out of date. jit is off: the cost of disabled plans would make Postgres 15 to 17 compile each query.
create or replace function pipeline.receive(consumer text, max integer default 1, visibility interval default null)
returns table (
    ack_id uuid, seq bigint, commit_lsn bigint, commit_idx integer, source_table_schema text, source_table_name text,
    record_pk text, action text, record jsonb, changes jsonb, exact jsonb, unchanged_columns text[],
    transaction_annotations jsonb, metadata jsonb, committed_at timestamptz, deliveries integer)
language plpgsql security definer rows 10 set search_path = ''
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set enable_sort = off
as $$
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
revoke execute on function pipeline.receive(consumer text, max integer, visibility interval) from public;
