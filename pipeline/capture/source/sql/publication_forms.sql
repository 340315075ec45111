-- Read what publications leave out: actions, options, and the tables of which they send only some rows or columns.
select p.pubname::text as name, p.oid::bigint as oid, p.pubviaroot as via_root,
    array_remove(array[case when p.pubinsert then 'insert' end, case when p.pubupdate then 'update' end,
        case when p.pubdelete then 'delete' end, case when p.pubtruncate then 'truncate' end], null) as actions,
    coalesce((select jsonb_agg(jsonb_build_object('schema', n.nspname, 'name', c.relname,
            'filter', pg_catalog.pg_get_expr(r.prqual, r.prrelid),
            'columns', (select jsonb_agg(a.attname order by a.attnum) from pg_catalog.pg_attribute a
                where a.attrelid = r.prrelid and a.attnum = any(r.prattrs::int2[])))
            order by n.nspname, c.relname)
        from pg_catalog.pg_publication_rel r
        join pg_catalog.pg_class c on c.oid = r.prrelid
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where r.prpubid = p.oid and (r.prqual is not null or r.prattrs is not null)), '[]') as partial
from pg_catalog.pg_publication p
where p.pubname = any(%(publications)s)
order by p.pubname
