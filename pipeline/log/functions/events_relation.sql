-- An events table by its name, quoted for a statement; null: the view of the default one.
create or replace function pipeline.events_relation(events_table text) returns text
language sql immutable parallel safe
as $$
    select case when events_table is null then 'pipeline.events'
        else format('%I.%I', split_part(events_table, '.', 1), split_part(events_table, '.', 2)) end
$$;
revoke execute on function pipeline.events_relation(events_table text) from public;
