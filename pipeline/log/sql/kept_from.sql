-- Read the seq from which on every event of an events table is kept, by its first partition and by retention.
select {kept_from}
from (
    select greatest({retention},
        coalesce(min((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''(\d+)''\)'))[1]::bigint), 1)) as from_seq
    from pg_catalog.pg_inherits i join pg_catalog.pg_class c on c.oid = i.inhrelid
    where i.inhparent = to_regclass(%(relation)s) and not i.inhdetachpending
) k
