-- Store a statement that creates a part of a table once its rows are copied; it runs after those stored before.
insert into pipeline_follower.unmade (source_database_id, follower, table_oid, place, statement)
select %(source)s, %(follower)s, %(oid)s, coalesce(max(u.place), 0) + 1, %(statement)s
from pipeline_follower.unmade u
where u.source_database_id = %(source)s and u.follower = %(follower)s and u.table_oid = %(oid)s
