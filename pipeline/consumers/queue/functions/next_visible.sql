-- Return the time at which the next delivery expires, or the next delay ends. If that time has passed, items can be
-- received now. Items that receive would not deliver at their time are left out: they become available at the time of
-- another item, or with a notification.
-- The settings make Postgres read items in the order of the queue, and find them by their keys. The statistics of a
-- queue are always out of date. jit is off: the cost of disabled plans would make Postgres 15 to 17 compile each query.
create or replace function pipeline.next_visible(consumer text) returns timestamptz
language plpgsql stable security definer set search_path = ''
set jit = off
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set enable_sort = off
as $$
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
revoke execute on function pipeline.next_visible(consumer text) from public;
