-- The columns of a table: name, the type that decides how its values are written, whether it is generated, and whether
-- its values alone put rows in an order that is always the same.
with recursive types as (
    select a.attnum, a.atttypid as type, a.atttypid as base
    from pg_catalog.pg_attribute a
    where a.attrelid = %(oid)s and a.attnum > 0 and not a.attisdropped
    union all
    select types.attnum, types.type, t.typbasetype
    from types join pg_catalog.pg_type t on t.oid = types.base
    where t.typtype = 'd'
)
select a.attname::pg_catalog.text as name, a.atttypid::pg_catalog.int8 as type, types.base in (114, 3802) as json,
    a.attgenerated <> '' as generated,
    exists (select from pg_catalog.pg_index i
        where i.indrelid = a.attrelid and i.indnkeyatts = 1 and i.indkey[0] = a.attnum and i.indisunique
            and i.indisvalid and i.indimmediate and i.indpred is null and a.attnotnull
            -- Existing rows may have nulls: attnotnull is true of a not null that is not valid as well.
            and not exists (select from pg_catalog.pg_constraint k
                where k.conrelid = a.attrelid and k.contype = 'n' and a.attnum = any(k.conkey) and not k.convalidated)
        ) as unique
from pg_catalog.pg_attribute a
join types on types.attnum = a.attnum
join pg_catalog.pg_type t on t.oid = types.base and t.typtype <> 'd'
where a.attrelid = %(oid)s
