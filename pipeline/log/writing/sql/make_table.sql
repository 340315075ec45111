-- Create a table with the columns of the events table, read from the catalog: `like` would keep a lock on the events table
-- until the commit.
do $$ declare
    of_events constant regclass := {events};
    setting text;
begin
    execute (
        select format('create table {table} (%s) with (autovacuum_enabled = off, toast.autovacuum_enabled = off)',
            string_agg(concat_ws(' ', quote_ident(a.attname), format_type(a.atttypid, a.atttypmod),
                case when a.attcollation <> t.typcollation then 'collate ' || a.attcollation::regcollation end,
                'default ' || pg_get_expr(d.adbin, d.adrelid), case when a.attnotnull then 'not null' end), ', '
                order by a.attnum))
        from pg_attribute a join pg_type t on t.oid = a.atttypid
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        where a.attrelid = of_events and a.attnum > 0 and not a.attisdropped);
    for setting in
        select format('alter column %I set storage %s', a.attname,
            case a.attstorage when 'p' then 'plain' when 'e' then 'external' when 'm' then 'main' else 'extended' end)
        from pg_attribute a join pg_type t on t.oid = a.atttypid
        where a.attrelid = of_events and a.attnum > 0 and not a.attisdropped and a.attstorage <> t.typstorage
        union all
        select format('alter column %I set compression %s', a.attname,
            case a.attcompression when 'l' then 'lz4' else 'pglz' end)
        from pg_attribute a
        where a.attrelid = of_events and a.attnum > 0 and not a.attisdropped and a.attcompression <> ''
    loop
        execute 'alter table {table} ' || setting;
    end loop;
end $$
