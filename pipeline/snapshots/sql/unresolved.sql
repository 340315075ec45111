-- Keys of rows whose newest event lacks values that the WAL left out: events after one seq, or after another for the
-- keys in `left_out`.
select {key} as key
from {events} e
where e.seq > {begun} and (e.seq > {since} or e.record_pk = any(%(left_out)s)) and e.source_database_id = %(source)s and e.source_epoch = %(epoch)s
    and e.source_table_oid = %(table)s and e.unchanged_columns is not null and e.action in ('insert', 'update')
    {newest}
