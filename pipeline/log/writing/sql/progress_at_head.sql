-- How far the writer of this generation has come; no row when a newer one has taken over.
select commit_lsn from pipeline.replication_progress
where source_id = %(source)s and worker = 0 and generation = %(generation)s
