-- List valid indexes that begin with these columns, and invalid ones on exactly these, of a table and its partitions.
select t.relid::bigint as table_oid, quote_ident(tn.nspname) || '.' || quote_ident(tc.relname) as table_name,
    t.relid = %(oid)s::oid as is_root, tc.relkind = 'p' as is_partitioned,
    x.oid::bigint as index_oid,
    quote_ident(xn.nspname) || '.' || quote_ident(x.relname) as index_name, i.indisvalid as valid,
    h.inhparent::bigint as attached_to
from (
    select %(oid)s::oid as relid, 0 as level
    union select p.relid::oid, p.level from pg_partition_tree(%(oid)s::oid::regclass) p where p.level <= 1
) t
join pg_class tc on tc.oid = t.relid join pg_namespace tn on tn.oid = tc.relnamespace
left join (
    pg_index i
    join pg_class x on x.oid = i.indexrelid
    join pg_am m on m.oid = x.relam and m.amname = 'btree'
    join pg_namespace xn on xn.oid = x.relnamespace
    cross join lateral (
        select array_agg(a.attname::text order by k.n) as columns
        from unnest(i.indkey::int2[]) with ordinality k (attnum, n)
        join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
    ) named
) on i.indrelid = t.relid and i.indpred is null
    and (named.columns = %(columns)s::text[]
        or i.indisvalid and named.columns[1:cardinality(%(columns)s::text[])] = %(columns)s::text[])
left join pg_inherits h on h.inhrelid = x.oid
order by t.level, table_name, i.indisvalid desc
