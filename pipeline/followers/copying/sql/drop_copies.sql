-- Delete the state of a follower's copies and schema changes.
with forms as (
    delete from pipeline_follower.forms where source_database_id = %(source)s and follower = %(follower)s
), types as (
    delete from pipeline_follower.types where source_database_id = %(source)s and follower = %(follower)s
), unmade as (
    delete from pipeline_follower.unmade where source_database_id = %(source)s and follower = %(follower)s
), checks as (
    delete from pipeline_follower.checks where source_database_id = %(source)s and follower = %(follower)s
)
delete from pipeline_follower.copies where source_database_id = %(source)s and follower = %(follower)s
