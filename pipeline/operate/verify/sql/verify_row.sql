-- The row of a source at a seq, else the last row before it; without retried dead letters.
select seq, source_epoch, commit_lsn, commit_idx, xid, committed_at,
    case when action = 'read' or metadata ? 'recovered' then 'read' when transaction_annotations is not null then 'annotated'
        else 'plain' end as kind,
    concat_ws('.', nullif(source_table_schema, ''), source_table_name) as table_name
from {events}
where source_database_id = %(source)s and seq <= %(seq)s and (metadata is null or not metadata ? 'retried')
order by seq desc limit 1
