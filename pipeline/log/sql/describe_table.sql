-- Describe the relation with the name of an events table, and the rights of this user; no row if there is none.
select c.oid::bigint as oid, c.relkind::text as kind, pg_get_userbyid(c.relowner)::text as owner,
    current_user::text as "user", pg_has_role(c.relowner, 'usage') as is_owner,
    has_schema_privilege(c.relnamespace, 'create') as may_create,
    pg_get_partkeydef(c.oid) as partitioned_by,
    exists (select from pg_partitioned_table p where p.partrelid = c.oid and p.partdefid <> 0) as has_default,
    (select count(*) from pg_constraint k where k.conrelid = c.oid and k.conname = %(fence)s) > 0 as has_fence
from pg_class c
where c.oid = to_regclass(%(table)s)
