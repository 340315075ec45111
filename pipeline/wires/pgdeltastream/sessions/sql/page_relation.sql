-- A relation now: its quoted name; is_there: it still exists; moved: its rows are in another file than in the snapshot;
-- by_place: the role may read ctid.
select pg_catalog.format('%%I.%%I', n.nspname, c.relname) as name,
    pg_catalog.pg_relation_filenode(c.oid) is not null as is_there,
    pg_catalog.pg_relation_filenode(c.oid) is distinct from c.relfilenode as moved,
    coalesce(pg_catalog.has_column_privilege(c.oid, 'ctid', 'select'), false) as by_place
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.oid = %(oid)s
