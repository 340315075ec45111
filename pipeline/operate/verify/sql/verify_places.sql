-- The next rows of a source by seq that have a position in its history, without retried rows, which were added later.
select source_epoch, commit_lsn, commit_idx, seq, transaction_annotations is not null, action = 'read' or coalesce(metadata ? 'recovered', false),
    concat_ws('.', nullif(source_table_schema, ''), source_table_name)
from {events}
where source_database_id = %(source)s and seq > %(after)s and seq <= %(head)s and commit_lsn is not null
    and (metadata is null or not metadata ? 'retried')
order by seq limit %(limit)s
