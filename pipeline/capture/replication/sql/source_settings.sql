-- Read whether this server can be a source. On RDS the right to replicate is a role, not an attribute.
select current_setting('server_version_num')::int,
    current_setting('wal_level'),
    r.rolreplication or r.rolsuper
        or exists (select from pg_roles g where g.rolname = 'rds_replication' and pg_has_role(current_user, g.oid, 'member')),
    current_user::text,
    pg_is_in_recovery()
from pg_roles r
where r.rolname = current_user
