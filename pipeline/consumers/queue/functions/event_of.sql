-- Return the event of an item as JSON, from the events table that its consumer reads; null if it is no longer kept.
-- A legacy table may have a seq several times: the event of the item's row is preferred.
create or replace function pipeline.event_of(item public.consumer_records) returns jsonb
language plpgsql stable set search_path = ''
as $$
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
end $$;
revoke execute on function pipeline.event_of(item public.consumer_records) from public;
