-- Delete the state of tables that are no longer followed.
with unmade as (
    delete from pipeline_follower.unmade
    where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
), checks as (
    delete from pipeline_follower.checks
    where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
)
delete from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
