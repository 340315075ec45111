-- Put dead letters back, if each event is an item. Each is placed behind the available and delivered items of its row
-- or group, and in front of the blocked items there. With group_by a dead letter waits only in the line of its group,
-- because it has lost its place among the items of its row.
create or replace function pipeline.retry_in_line(me pipeline.consumers, seqs bigint[]) returns integer
language plpgsql set search_path = ''
as $$
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
revoke execute on function pipeline.retry_in_line from public;
