-- Return the version in the comment of the schema `pipeline_follower`.
select substring(pg_catalog.obj_description(n.oid, 'pg_namespace') from '^version (\d{1,9})\M')::int
from pg_catalog.pg_namespace n where n.nspname = 'pipeline_follower'
