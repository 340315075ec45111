-- Items are handed out: each to one receiver, under a new ack_id, for a time.

create view pipeline.receivable as
select r.* from public.consumer_records r
where r.state = 'available' and (r.visible_at is null or r.visible_at <= clock_timestamp())
    -- A truncate waits for what came before it in its table; what came after waits for the truncate.
    and not exists (
        select from public.consumer_records t
        where t.consumer_id = r.consumer_id and t.source_table_oid = r.source_table_oid
            and t.action = 'truncate' and t.state <> 'dead' and t.seq < r.seq)
    and (r.action <> 'truncate' or not exists (
        select from public.consumer_records o
        where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid and o.state <> 'dead'
            and (o.seq < r.seq or o.delivered_seq < r.seq and o.visible_at > clock_timestamp()
                and o.state <> 'available')
        union all
        select from pipeline.consumer_touches o
        where o.consumer_id = r.consumer_id and o.source_table_oid = r.source_table_oid and o.seq < r.seq))
    -- One of a group at a time, in order.
    and (r.group_id = '' or not exists (
        select from public.consumer_records o
        where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.group_id <> '' and o.state <> 'dead'
            and (o.queued_seq < r.queued_seq
                or o.queued_seq = r.queued_seq and (o.record is null, o.record_pk) < (r.record is null, r.record_pk)
                or o.state <> 'available' and o.visible_at > clock_timestamp())
        union all
        select from public.consumer_records o
        where o.consumer_id = r.consumer_id and o.delivered_group = r.group_id and o.visible_at > clock_timestamp()
        union all
        select from pipeline.consumer_touches o
        where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.queued_seq < r.queued_seq));
comment on view pipeline.receivable is 'Items that may be handed out now.';

create function pipeline.hand_out(consumer pipeline.consumers, upto integer, visibility interval)
returns setof public.consumer_records
language plpgsql set search_path = ''
as $$
declare
    picked public.consumer_records[];
begin
    select array_agg(p) into picked from (
        select r.* from pipeline.receivable r
        where r.consumer_id = hand_out.consumer.id
        order by r.queued_seq
        limit upto
        for update skip locked) p;
    -- Asked again, of what is locked now: an item that the shuffler touched after the first statement had begun may have
    -- a new place, behind a truncate or in a group that the first statement could not see.
    return query
        insert into public.consumer_records as r
        select i.* from unnest(picked) i
        on conflict (consumer_id, source_table_oid, record_pk, unkeyed) do update
        set state = 'delivered', ack_id = gen_random_uuid(), visible_at = clock_timestamp() + hand_out.visibility,
            deliveries = r.deliveries + 1, delivered_seq = r.seq, delivered_group = nullif(r.group_id, '')
        where r.state = 'available'
            and not exists (
                select from public.consumer_records t
                where t.consumer_id = r.consumer_id and t.source_table_oid = r.source_table_oid
                    and t.action = 'truncate' and t.state <> 'dead' and t.seq < r.seq)
            and (r.group_id = '' or not exists (
                select from public.consumer_records o
                where o.consumer_id = r.consumer_id and o.group_id = r.group_id and o.group_id <> ''
                    and o.state <> 'dead' and (o.queued_seq < r.queued_seq
                        or o.state <> 'available' and o.visible_at > clock_timestamp())))
        returning r.*;
end $$;

create function pipeline.receive(consumer text, max integer default 1, visibility interval default null)
returns table (
    ack_id uuid, seq bigint, commit_lsn bigint, commit_idx integer, source_table_schema text, source_table_name text,
    record_pk text, action text, record jsonb, changes jsonb, exact jsonb, unchanged_columns text[],
    transaction_annotations jsonb, metadata jsonb, committed_at timestamptz, deliveries integer)
language plpgsql security definer rows 10 set search_path = ''
as $$
#variable_conflict use_column
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
    upto integer := receive.max;
begin
    if receive.max is null or receive.max < 1 or receive.max > 1000 then
        raise invalid_parameter_value using message = format('max is %s: give 1 to 1000', coalesce(max::text, 'null'));
    elsif receive.visibility <= interval '0' then
        raise invalid_parameter_value using message = 'visibility must be longer than 0, or null for the consumer''s';
    end if;
    if me.state = 'paused' then
        return;
    end if;
    if me.group_by is not null or me.max_unacknowledged is not null then
        if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
            raise active_sql_transaction using message = format(
                'consumer %L has group_by or max_unacknowledged, whose receivers have to see each other', me.name),
                hint = 'Receive in a transaction of isolation level read committed.';
        end if;
        -- Two receivers at once would both find the group free, or the same room below the limit.
        perform pg_advisory_xact_lock(714629015, me.id);
    end if;
    perform pipeline.release_expired(me);
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
    return query
        select h.ack_id, h.seq, h.commit_lsn, h.commit_idx, e.source_table_schema, e.source_table_name,
            h.record_pk, h.action, coalesce(h.record, e.record),
            case when h.record is null then e.changes end, case when h.record is null then e.exact end,
            case when h.record is null then e.unchanged_columns end, e.transaction_annotations, e.metadata,
            e.committed_at, h.deliveries
        from pipeline.hand_out(me, upto, coalesce(receive.visibility, me.visibility)) h
        cross join lateral (
            -- A table from before may have one seq several times.
            (select * from pipeline.events e where e.seq = h.seq and h.event is null
            order by (e.source_table_oid = h.source_table_oid and e.record_pk = h.record_pk) desc limit 1)
            union all
            select * from jsonb_populate_record(null::pipeline.events, h.event) where h.event is not null
        ) e
        order by h.queued_seq, h.record is null, h.record_pk;
end $$;

create function pipeline.next_visible(consumer text) returns timestamptz
language plpgsql stable security definer set search_path = ''
as $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
begin
    return (select r.visible_at from public.consumer_records r
        where r.consumer_id = me.id and r.visible_at > clock_timestamp()
        order by r.visible_at limit 1);
end $$;
