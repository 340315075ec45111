-- A relation now: its name as this session reads it, whether it is still there, and whether its rows are in another file
-- than the snapshot knows.
select c.oid::pg_catalog.regclass::text as name, pg_catalog.pg_relation_filenode(c.oid) is not null as is_there,
    pg_catalog.pg_relation_filenode(c.oid) is distinct from c.relfilenode as moved
from pg_catalog.pg_class c
where c.oid = %(oid)s
