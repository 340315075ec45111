-- Rows of a source after the newest row that the watermark covers, and their number. Rows of a table that waits in this
-- snapshot may be in the log by now.
select seq, source_epoch, commit_lsn, commit_idx,
    concat_ws('.', nullif(source_table_schema, ''), source_table_name) as table_name, count(*) over () as found
from {events} e
where source_database_id = %(source)s and seq > %(head)s and commit_lsn is not null
    and not exists (select from pipeline.adopted_tables t where t.source_id = %(source)s and t.state = 'waiting'
        and e.seq between t.first_seq and t.last_seq)
order by seq limit %(shown)s
