-- Staged transactions between the log's newest transaction and the watermark: the shuffler would skip them.
select min(w.commit_lsn) as commit_lsn
from public.wal_events w join pipeline.relations r on r.id = w.relation_id
where r.source_id = %(source)s and w.commit_lsn > %(after)s and w.commit_lsn <= %(upto)s
