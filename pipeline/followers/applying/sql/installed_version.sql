-- The version that the comment of our schema in a follower says.
select substring(pg_catalog.obj_description(n.oid, 'pg_namespace') from '^version (\d{1,9})\M')::int
from pg_catalog.pg_namespace n where n.nspname = 'pipeline_follower'
