-- Rows of a source after the newest one that the watermark covers, and how many there are.
select seq, source_epoch, commit_lsn, commit_idx,
    concat_ws('.', nullif(source_table_schema, ''), source_table_name) as table_name, count(*) over () as found
from {events}
where source_database_id = %(source)s and seq > %(head)s and commit_lsn is not null
order by seq limit %(shown)s
