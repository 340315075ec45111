-- What there is under the name of an events table, and what this user may do about it; no row when nothing is.
select c.oid::bigint as oid, c.relkind::text as kind, pg_get_userbyid(c.relowner)::text as owner,
    current_user::text as me, pg_has_role(c.relowner, 'usage') as owned,
    has_schema_privilege(c.relnamespace, 'create') as may_create,
    pg_get_partkeydef(c.oid) as divided_by,
    exists (select from pg_partitioned_table p where p.partrelid = c.oid and p.partdefid <> 0) as has_default,
    (select count(*) from pg_constraint k where k.conrelid = c.oid and k.conname = %(fence)s) > 0 as fenced
from pg_class c
where c.oid = to_regclass(%(table)s)
