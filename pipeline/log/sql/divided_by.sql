-- What an events table is partitioned by, null when it is not; and whether any row finds a place in it as it is.
select pg_get_partkeydef(c.oid) as key, p.partdefid is distinct from 0 as has_default
from pg_class c left join pg_partitioned_table p on p.partrelid = c.oid
where c.oid = %(table)s::regclass
