-- Tables whose primary key holds only at a commit.
select i.indrelid::bigint from pg_catalog.pg_index i
where i.indrelid = any(%(oids)s::oid[]) and i.indisprimary and not i.indimmediate
