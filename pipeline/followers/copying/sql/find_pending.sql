-- Statements that must still run, of these tables or of all. An older server stored the statements of all tables as table 0.
select table_oid, place, statement from pipeline_follower.unmade
where source_database_id = %(source)s and follower = %(follower)s
    and (%(oids)s::bigint[] is null or table_oid = any(%(oids)s) or table_oid = 0)
order by table_oid, place
