-- Which of these tables this user may not publish, because it does not own them.
select c.oid::bigint
from pg_class c
where c.oid = any(%(tables)s::oid[]) and not pg_has_role(current_user, c.relowner, 'usage')
