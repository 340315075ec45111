-- Removed rows will be staged, and counted, again.
update pipeline.replication_progress set changes = changes - %(void)s
where source_id = %(source)s and worker = %(worker)s
