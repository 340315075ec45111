-- An events table from its name, `schema.table`; null: the default one.
create or replace function pipeline.find_events_table(events_table text) returns regclass
language plpgsql stable set search_path = ''
as $$
declare
    found_one regclass := case when find_events_table.events_table ~ '^[^."]+[.][^."]+$' then
        to_regclass(pipeline.events_relation(find_events_table.events_table)) end;
begin
    if find_events_table.events_table is not null and found_one is null then
        raise invalid_parameter_value using
            message = format('there is no events table %s', find_events_table.events_table),
            hint = format('Name one that a route sends changes to, schema.table, as the server makes it; there are: %s.', (
                select coalesce(string_agg(distinct t.name, ', '), 'none yet') from pipeline.events_tables t));
    end if;
    return found_one;
end $$;
revoke execute on function pipeline.find_events_table(events_table text) from public;
