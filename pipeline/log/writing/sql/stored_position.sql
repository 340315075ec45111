-- How far a worker has staged; no row when it never began.
select position from pipeline.replication_progress where source_id = %(source)s and worker = %(worker)s
