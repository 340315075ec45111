-- Recorded checks that are valid at the source and not in this database, with the statement that validates each.
select m.table_oid, m.relation::bigint as relation, pg_catalog.format('%%I.%%I', n.nspname, c.relname) as shown, m.name,
    pg_catalog.format('alter table %%I.%%I validate constraint %%I', n.nspname, c.relname, m.name) as validates, m.reason
from pipeline_follower.checks m
join pg_catalog.pg_constraint k on k.conrelid = m.relation and k.conname = m.name and not k.convalidated
join pg_catalog.pg_class c on c.oid = m.relation
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where m.source_database_id = %(source)s and m.follower = %(follower)s and m.is_valid
order by 1, 2, 4
