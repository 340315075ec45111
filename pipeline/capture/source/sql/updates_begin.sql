-- Updates and deletes of tables are captured later than they joined: what they were when they joined says nothing now.
update pipeline.captured_tables set root_oid = null
where source_id = %(source)s and table_oid = any(%(oids)s) and left_at is null and root_oid is not null
