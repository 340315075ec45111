-- True if anything that describes these tables may have been changed by a transaction that had not ended when the
-- slot had this catalog_xmin. Then the current catalog may be wrong for some of the changes that the slot sends.
with recursive tree as (
    select c.oid, c.relnamespace from pg_catalog.pg_class c where c.oid = any(%(oids)s::oid[])
    union
    select c.oid, c.relnamespace
    from tree
    join pg_catalog.pg_inherits i on i.inhrelid = tree.oid
    join pg_catalog.pg_class c on c.oid = i.inhparent
), types as (
    select t.oid, t.typtype, t.typbasetype, t.typelem, t.typnamespace, t.typrelid
    from pg_catalog.pg_attribute a
    join tree on tree.oid = a.attrelid
    join pg_catalog.pg_type t on t.oid = a.atttypid
    where a.attnum > 0
    union
    select t.oid, t.typtype, t.typbasetype, t.typelem, t.typnamespace, t.typrelid
    from types join pg_catalog.pg_type t on t.oid in (types.typbasetype, types.typelem)
        or types.typrelid <> 0 and t.oid in (select a.atttypid from pg_catalog.pg_attribute a
            where a.attrelid = types.typrelid and a.attnum > 0)
), described as (
    select c.xmin from pg_catalog.pg_class c where c.oid in (select oid from tree)
    union all
    select a.xmin from pg_catalog.pg_attribute a where a.attrelid in (select oid from tree) and a.attnum > 0
    union all
    select i.xmin from pg_catalog.pg_index i where i.indrelid in (select oid from tree) and i.indisunique
    union all
    select k.xmin from pg_catalog.pg_constraint k where k.conrelid in (select oid from tree) and k.contype in ('p', 'u')
    union all
    select i.xmin from pg_catalog.pg_inherits i where i.inhrelid in (select oid from tree)
    union all
    select t.xmin from pg_catalog.pg_type t where t.oid in (select oid from types)
    union all
    select a.xmin from pg_catalog.pg_attribute a
    where a.attrelid in (select typrelid from types where typrelid <> 0) and a.attnum > 0
    union all
    select n.xmin from pg_catalog.pg_namespace n
    where n.oid in (select relnamespace from tree union select typnamespace from types)
    union all
    select p.xmin from pg_catalog.pg_publication p where p.pubname = any(%(publications)s)
    union all
    select r.xmin
    from pg_catalog.pg_publication_rel r join pg_catalog.pg_publication p on p.oid = r.prpubid
    where r.prrelid in (select oid from tree) and p.pubname = any(%(publications)s)
)
-- Rows of initdb have a higher age than all others; a row that seems younger than it is counts as changed.
select (select count(*) from unnest(%(oids)s::oid[]) o where o not in (select oid from tree)) > 0
    or exists (select from described where age(xmin) <= age(%(catalog_xmin)s::text::xid))
