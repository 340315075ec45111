-- Describe tables of the follower by schema and name: the kind, the columns, and the unique indexes that find a row. A
-- table that does not exist has no row.
with class as (
    select c.oid, c.relkind, n.nspname, c.relname
    from (select distinct schema, name from unnest(%(schemas)s::name[], %(names)s::name[]) w (schema, name)) wanted
    join pg_catalog.pg_namespace n on n.nspname = wanted.schema
    join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = wanted.name and c.relkind in ('r', 'p')
)
select class.nspname::text as schema, class.relname::text as name, class.relkind = 'p' as partitioned,
    (
        select jsonb_build_array(n.nspname, r.relname) from pg_catalog.pg_class r
        join pg_catalog.pg_namespace n on n.oid = r.relnamespace
        where r.oid = pg_catalog.pg_partition_root(class.oid) and r.oid <> class.oid
    ) as root,
    -- The columns of the partition key, which each unique index must contain; null: an expression, which allows none.
    coalesce((select jsonb_agg(a.attname) from pg_catalog.pg_partitioned_table d
        cross join unnest(d.partattrs::int2[]) k (attnum)
        left join pg_catalog.pg_attribute a on a.attrelid = d.partrelid and a.attnum = k.attnum
        where d.partrelid = class.oid), '[]') as partition_columns,
    exists (
        select from pg_catalog.pg_trigger g
        where g.tgenabled in ('A', 'R') and not g.tgisinternal
            and (g.tgrelid = class.oid or g.tgrelid in (select relid from pg_catalog.pg_partition_tree(class.oid)))
    ) as fires,
    (select coalesce(jsonb_agg(jsonb_build_object(
            'name', a.attname,
            'type_name', pg_catalog.format_type(a.atttypid, a.atttypmod),
            -- A domain may refuse the null of a value that is left out.
            'carried_as', case when t.typtype = 'd' then (
                with recursive base (oid, typmod) as (
                    select a.atttypid, a.atttypmod
                    union all
                    select d.typbasetype, d.typtypmod from base b join pg_catalog.pg_type d on d.oid = b.oid and d.typtype = 'd'
                )
                select pg_catalog.format_type(b.oid, b.typmod) from base b
                join pg_catalog.pg_type y on y.oid = b.oid and y.typtype <> 'd'
            ) else pg_catalog.format_type(a.atttypid, a.atttypmod) end,
            -- A domain has the output function of its base type.
            'document', t.typoutput in ('json_out'::regproc, 'jsonb_out'::regproc),
            'generated', a.attgenerated <> '',
            'large', a.attstorage in ('x', 'e')
        ) order by a.attnum), '[]')
        from pg_catalog.pg_attribute a join pg_catalog.pg_type t on t.oid = a.atttypid
        where a.attrelid = class.oid and a.attnum > 0 and not a.attisdropped) as columns,
    (select coalesce(jsonb_agg((
            select jsonb_object_agg(a.attname, 'operator(' || pg_catalog.quote_ident(n.nspname) || '.' || o.oprname || ')')
            from unnest(i.indkey::int2[]) with ordinality k (attnum, number)
            join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
            join pg_catalog.pg_opclass c on c.oid = i.indclass[k.number - 1]
            join pg_catalog.pg_amop m on m.amopfamily = c.opcfamily and m.amopstrategy = 3
                and m.amoplefttype = c.opcintype and m.amoprighttype = c.opcintype
            join pg_catalog.pg_operator o on o.oid = m.amopopr
            join pg_catalog.pg_namespace n on n.oid = o.oprnamespace
            where k.number <= i.indnkeyatts
        ) order by i.indisprimary desc, i.indisreplident desc, i.indexrelid), '[]')
        from pg_catalog.pg_index i
        where i.indrelid = class.oid and i.indisunique and i.indisvalid and i.indimmediate
            and i.indpred is null and i.indexprs is null) as keys
from class
