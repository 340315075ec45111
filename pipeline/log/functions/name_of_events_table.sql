-- The name of an events table that a consumer can read; null for the default one.
create or replace function pipeline.name_of_events_table(events_table regclass) returns text
language plpgsql stable set search_path = ''
as $$
declare
    of_table text := (
        select n.nspname || '.' || t.relname from pg_class t join pg_namespace n on n.oid = t.relnamespace
        where t.oid = name_of_events_table.events_table);
begin
    if of_table is null or exists (
        select from pg_rewrite w
        join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
        where w.ev_class = 'pipeline.events'::regclass and d.refobjid = name_of_events_table.events_table)
    then
        return null;
    elsif not exists (select from pipeline.events_tables t where t.name = of_table) then
        raise invalid_parameter_value using message = format('%s is no events table', of_table),
            hint = format('Name one that a route sends changes to, and start the server, which makes it; there are: %s.', (
                select coalesce(string_agg(distinct t.name, ', '), 'none yet') from pipeline.events_tables t));
    end if;
    return of_table;
end $$;
revoke execute on function pipeline.name_of_events_table(events_table regclass) from public;
