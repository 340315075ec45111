-- The oid of a table of the follower; null where there is none.
select pg_catalog.to_regclass(%(table)s)::oid::bigint
