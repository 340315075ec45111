-- Read publications with their members: [oid of the membership, schema, table] by the oid of table or schema.
select p.pubname::text as name, p.oid::bigint as oid, p.puballtables as all_tables, p.pubviaroot as via_root,
    to_jsonb(p) ->> 'pubgencols' as generated,
    array_remove(array[case when p.pubinsert then 'insert' end, case when p.pubupdate then 'update' end,
        case when p.pubdelete then 'delete' end, case when p.pubtruncate then 'truncate' end], null) as actions,
    coalesce((select jsonb_object_agg(r.prrelid::bigint, jsonb_build_array(r.oid::bigint, n.nspname, c.relname))
        from pg_catalog.pg_publication_rel r
        join pg_catalog.pg_class c on c.oid = r.prrelid
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where r.prpubid = p.oid), '{}') as tables,
    coalesce((select jsonb_object_agg(s.pnnspid::bigint, jsonb_build_array(s.oid::bigint, n.nspname, ''))
        from pg_catalog.pg_publication_namespace s
        join pg_catalog.pg_namespace n on n.oid = s.pnnspid
        where s.pnpubid = p.oid), '{}') as schemas
from pg_catalog.pg_publication p
where p.pubname = any(%(publications)s)
