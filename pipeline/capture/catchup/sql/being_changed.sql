-- True if these tables or their parents are locked by a transaction that may have committed, but is not visible yet.
with recursive tree as (
    select unnest(%(oids)s::oid[]) as oid
    union
    select i.inhparent from tree join pg_catalog.pg_inherits i on i.inhrelid = tree.oid
)
select exists (
    select from pg_catalog.pg_locks l
    where l.locktype = 'relation' and l.granted and l.mode = 'AccessExclusiveLock'
        and l.database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
        and l.relation in (select oid from tree)
)
