-- The event of an item as JSON, from the events table that its consumer reads; null where it is not kept.
create or replace function pipeline.event_of(item public.consumer_records) returns jsonb
language plpgsql stable set search_path = ''
as $$
declare
    of_table text := (select c.events_table from pipeline.consumers c where c.id = item.consumer_id);
    found_one jsonb;
begin
    if of_table is null then
        -- As below, planned once: many items may be buried together.
        select to_jsonb(e) into found_one from pipeline.events e where e.seq = item.seq
        order by (e.source_table_oid = item.source_table_oid and e.record_pk = item.record_pk) desc limit 1;
    elsif to_regclass(pipeline.events_relation(of_table)) is not null then
        execute format($query$
            select to_jsonb(e) from %s e where e.seq = $1
            order by (e.source_table_oid = $2 and e.record_pk = $3) desc limit 1$query$,
            pipeline.events_relation(of_table))
        into found_one using item.seq, item.source_table_oid, item.record_pk;
    end if;
    return found_one;
end $$;
revoke execute on function pipeline.event_of(item public.consumer_records) from public;
