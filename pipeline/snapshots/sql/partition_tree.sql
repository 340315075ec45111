-- The leaves of partitioned tables, of all levels, each with the xmin of the rows of pg_inherits that attach it. Partitions
-- that wait in `detach … concurrently` are left out, with all below them. made_so: the newest of these rows is as old as the
-- leaf, whose system columns no statement changes. captured_first: that row is newer than those that publish the root.
with recursive tree (root, oid, attached_by, newest) as (
    select r.oid, r.oid::pg_catalog.oid, ''::pg_catalog.text, null::pg_catalog.xid from pg_catalog.unnest(%(roots)s::pg_catalog.int8[]) r (oid)
    union all
    select t.root, i.inhrelid, pg_catalog.concat(i.xmin, ' ', t.attached_by),
        case when pg_catalog.age(t.newest) operator(pg_catalog.<) pg_catalog.age(i.xmin) then t.newest else i.xmin end
    from tree t join pg_catalog.pg_inherits i
        on i.inhparent operator(pg_catalog.=) t.oid and not i.inhdetachpending
)
select t.root as root_oid, t.oid::pg_catalog.int8 as leaf_oid, pg_catalog.concat(n.nspname, '.', c.relname) as leaf_name,
    t.attached_by, t.newest operator(pg_catalog.=) a.xmin as made_so, coalesce((
        select pg_catalog.min(pg_catalog.age(p.xmin)) operator(pg_catalog.>) pg_catalog.age(t.newest)
        from pg_catalog.pg_publication_rel p where p.prrelid operator(pg_catalog.=) t.root
    ), false) as captured_first
from tree t
join pg_catalog.pg_class c on c.oid operator(pg_catalog.=) t.oid and c.relispartition
join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) c.oid and a.attname operator(pg_catalog.=) 'ctid'
join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace
where c.relkind operator(pg_catalog.=) 'r' and c.relpersistence operator(pg_catalog.=) 'p'
