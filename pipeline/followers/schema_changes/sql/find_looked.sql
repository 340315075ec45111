-- Up to which change of partitions the tables of a follower are divided as the source's, and which of them they keep.
select table_oid, looked_upto, kept from pipeline_follower.partitions
where source_database_id = %(source)s and follower = %(follower)s
