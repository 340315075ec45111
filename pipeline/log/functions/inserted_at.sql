-- When the first event from a seq on arrived in an events table; null where there is none.
create or replace function pipeline.inserted_at(events_table text, from_seq bigint) returns timestamptz
language plpgsql stable set search_path = ''
as $$
declare
    arrived timestamptz;
begin
    if to_regclass(pipeline.events_relation(events_table)) is not null then
        execute format('select e.inserted_at from %s e where e.seq >= $1 order by e.seq limit 1',
            pipeline.events_relation(events_table)) into arrived using from_seq;
    end if;
    return arrived;
end $$;
revoke execute on function pipeline.inserted_at(events_table text, from_seq bigint) from public;
