-- Lock what is known of the copies of these tables, in one order.
select from pipeline_follower.copies
where source_database_id = %(source)s and follower = %(follower)s and table_oid = any(%(oids)s)
order by table_oid for update
