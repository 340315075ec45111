-- Read a table as the catalog has it now, in one snapshot: partition root, primary key, files and columns. `settled`:
-- older than every change that the slot may still send, so it was the same for the described change.
with slot as (
    select coalesce(max(age(s.catalog_xmin)), 2147483647) as behind
    from pg_catalog.pg_replication_slots s where s.slot_name = %(slot)s
), class as (
    select c.oid, c.relname, c.relreplident, c.relfilenode, n.nspname, c.xmin, birth.xmin as born, birth.cmin as born_at,
        coalesce(pg_catalog.pg_partition_root(c.oid), c.oid) as root_oid,
        -- A table that is older than the transaction of a change, and was not altered since, is as it was then.
        coalesce(age(birth.xmin) > age(%(xid)s::text::xid), false) as born_before
    from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    join pg_catalog.pg_attribute birth on birth.attrelid = c.oid and birth.attname = 'ctid'  -- never altered
    where c.oid = %(oid)s
), published as (
    select pr.oid::bigint as oid, pr.xmin, to_jsonb(pr) ->> 'prattrs' is not null as has_list
    from class join pg_catalog.pg_publication_rel pr on pr.prrelid in (class.oid, class.root_oid)
    join pg_catalog.pg_publication p on p.oid = pr.prpubid
    where p.pubname = any(%(publications)s) and p.oid::bigint <> all(%(made)s::bigint[])
), tree as (
    select c.oid, c.relnamespace from pg_catalog.pg_class c
    where c.oid = %(oid)s or c.oid in (select relid from pg_catalog.pg_partition_ancestors(%(oid)s::regclass))
), memberships as (
    -- Memberships that publish updates: a row that names the table, or a publication that has it without naming it.
    -- Postgres' own view opens every published table, and so waits for any session that locks one.
    select coalesce(pr.oid, p.oid)::bigint as oid, coalesce(pr.xmin, p.xmin) as xmin
    from pg_catalog.pg_publication p
    left join pg_catalog.pg_publication_rel pr on pr.prpubid = p.oid and pr.prrelid in (select oid from tree)
    where p.pubname = any(%(publications)s) and p.pubupdate
        and (pr.oid is not null or p.puballtables or exists (
            select from pg_catalog.pg_publication_namespace s join tree on s.pnnspid = tree.relnamespace
            where s.pnpubid = p.oid))
)
select class.root_oid::bigint as table_oid, rn.nspname::text as table_schema, root.relname::text as table_name,
    class.nspname::text as relation_schema, class.relname::text as relation_name,
    class.relreplident::text as replica_identity,
    class.relfilenode::bigint as file,
    age(class.xmin) > slot.behind or class.relfilenode in (0, class.oid)
        or class.xmin = class.born and class.born_before as file_settled,
    coalesce(age(class.xmin) < age(%(xid)s::text::xid) and age(class.xmin) <= slot.behind, false) as altered_later,
    coalesce(age(root.xmin) < age(%(xid)s::text::xid) and age(root.xmin) <= slot.behind, false) as root_later,
    coalesce(age(rn.xmin) < age(%(xid)s::text::xid) and age(rn.xmin) <= slot.behind, false) as schema_later,
    (select coalesce(bool_or(has_list), false) from published) as column_list,
    (select coalesce(bool_and(age(published.xmin) > slot.behind), true) from published) as publication_settled,
    (select array_agg(published.oid order by published.oid) from published) as published,
    (select coalesce(jsonb_agg(jsonb_build_object(
            'attnum', a.attnum, 'name', a.attname, 'type_oid', a.atttypid::bigint,
            'type_modifier', a.atttypmod, 'dropped', a.attisdropped,
            'generated', a.attgenerated, 'version', a.xmin::text || a.ctid::text, 'missing', a.atthasmissing,
            'filled', a.atthasdef or a.attnotnull or t.typtype = 'd',  -- a default may have been dropped since
            'attributes', held.attributes::text,
            'attributes_later', coalesce(held.later, false),
            'settled', age(a.xmin) > slot.behind or a.xmin = class.born
                and (class.born_before or a.cmin = class.born_at and a.xmax = '0'::xid)
        ) order by a.attnum), '[]')
        from pg_catalog.pg_attribute a left join pg_catalog.pg_type t on t.oid = a.atttypid
        left join lateral (
            -- Attributes, by their numbers, of all composite types that a value may have in it.
            with recursive types (oid) as (
                select a.atttypid where t.typtype in ('c', 'd', 'r', 'm') or t.typelem <> 0
                union
                select next.oid
                from types join pg_catalog.pg_type n on n.oid = types.oid
                cross join lateral (
                    select unnest(array[n.typelem, n.typbasetype]) as oid
                    union all
                    select r.rngsubtype from pg_catalog.pg_range r where n.oid in (r.rngtypid, r.rngmultitypid)
                    union all
                    select b.atttypid from pg_catalog.pg_attribute b
                    where b.attrelid = n.typrelid and n.typrelid <> 0 and b.attnum > 0 and not b.attisdropped
                ) next
                where next.oid <> 0
            ), composites as (
                select n.typrelid as oid,
                    jsonb_object_agg(b.attnum, b.attname) filter (where not b.attisdropped) as attributes,
                    bool_or(age(b.xmin) < age(%(xid)s::text::xid) and age(b.xmin) <= slot.behind) as later
                from types
                join pg_catalog.pg_type n on n.oid = types.oid
                join pg_catalog.pg_attribute b on b.attrelid = n.typrelid and b.attnum > 0
                group by n.typrelid
            )
            select jsonb_object_agg(oid::bigint, coalesce(attributes, '{}')) as attributes, bool_or(later) as later
            from composites
        ) held on not a.attisdropped
        where a.attrelid = class.oid and a.attnum > 0) as columns,
    (select array_agg(a.attname::text order by a.attnum) from pg_catalog.pg_attribute a
     where a.attrelid = class.root_oid and a.attnum > 0 and not a.attisdropped) as column_order,
    (select array_agg(k.attnum::int) from pg_catalog.pg_index i
     cross join unnest(i.indkey::int2[]) with ordinality k (attnum, place)
     where i.indrelid = class.oid and i.indisprimary and k.place <= i.indnkeyatts) as primary_key,
    coalesce((select bool_or(age(k.xmin) < age(%(xid)s::text::xid) and age(k.xmin) <= slot.behind)
        from pg_catalog.pg_constraint k where k.conrelid = class.oid and k.contype = 'p'), false) as primary_later,
    (select jsonb_agg((select jsonb_agg(a.attname) from pg_catalog.pg_attribute a
            where a.attrelid = i.indrelid and a.attnum = any((i.indkey::int2[])[:i.indnkeyatts - 1])))
        from pg_catalog.pg_index i
        where i.indrelid = class.root_oid and i.indisunique and i.indisvalid and i.indimmediate
            and i.indpred is null and i.indexprs is null) as root_keys,
    (select jsonb_agg(jsonb_build_array(m.oid, age(m.xmin) > slot.behind
            or coalesce(age(m.xmin) > age(%(xid)s::text::xid), false))) from memberships m) as memberships,
    (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint as read_at
from class cross join slot
join pg_catalog.pg_class root on root.oid = class.root_oid
join pg_catalog.pg_namespace rn on rn.oid = root.relnamespace
