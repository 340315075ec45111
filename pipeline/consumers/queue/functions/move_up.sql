-- If each event is an item: make the items available that waited behind `gone`, which are settled or dead letters now.
-- Returns the number of items that became available. Items are locked in the order of the queue. Suppose two sessions
-- settle the last two items in front of a third item: one session waits here for the other, then sees both items
-- settled, and makes the third item available.
create or replace function pipeline.move_up(gone public.consumer_records[]) returns integer
language plpgsql set search_path = ''
as $$
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
revoke execute on function pipeline.move_up(gone public.consumer_records[]) from public;
