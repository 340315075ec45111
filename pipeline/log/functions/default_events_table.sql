-- The name of the default events table, which the view `pipeline.events` shows; null where it shows none.
create or replace function pipeline.default_events_table() returns text
language sql stable set search_path = ''
as $$
    select n.nspname || '.' || t.relname
    from pg_catalog.pg_rewrite w
    join pg_catalog.pg_depend d on d.classid = 'pg_catalog.pg_rewrite'::regclass and d.objid = w.oid
        and d.refclassid = 'pg_catalog.pg_class'::regclass and d.refobjid <> w.ev_class
    join pg_catalog.pg_class t on t.oid = d.refobjid
    join pg_catalog.pg_namespace n on n.oid = t.relnamespace
    where w.ev_class = 'pipeline.events'::regclass
    limit 1
$$;
revoke execute on function pipeline.default_events_table() from public;
