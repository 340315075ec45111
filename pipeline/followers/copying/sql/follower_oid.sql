-- The oid of a table of the follower; null if the table does not exist.
select pg_catalog.to_regclass(%(table)s)::oid::bigint
