-- When the next delivery expires, or the next delay ends.
-- Items are read in the order of the queue, and found by their keys, whatever its statistics say: they are always out of
-- date. jit is off since the disabled plans' cost would make Postgres 15 to 17 compile queries, which takes longer.
create or replace function pipeline.next_visible(consumer text) returns timestamptz
language plpgsql stable security definer set search_path = ''
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_material = off
set enable_sort = off
as $$
declare
    me pipeline.consumers := pipeline.consumer_of(consumer, 'records');
begin
    return (select r.visible_at from public.consumer_records r
        where r.consumer_id = me.id and r.visible_at > clock_timestamp()
        order by r.visible_at limit 1);
end $$;
revoke execute on function pipeline.next_visible(consumer text) from public;
