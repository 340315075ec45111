-- Receive items: values as texts of jsonb, times as Sequin writes them, and the action and the table of the event. These
-- two are null if the event arrived after the start of this statement, or is in another events table than the default.
select i.ack_id::text as ack_id, i.seq, i.commit_lsn, i.commit_idx, i.source_table_schema, i.source_table_name,
    i.record_pk, i.action, i.record::text as record, i.changes::text as changes, i.exact::text as exact,
    i.transaction_annotations::text as annotations,
    to_char(i.committed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as committed_at,
    e.action as event_action, e.table_key, e.newest_version
from pipeline.receive(%(name)s::text, %(most)s::int) as i
left join lateral (
    select e.action, concat(e.source_database_id, ' ', e.source_epoch, ' ', e.source_table_oid) as table_key,
        coalesce((
            select r.id from pipeline.relations r where r.source_id = e.source_database_id
            order by r.id desc limit 1), 0) as newest_version
    from pipeline.events e
    where e.seq = i.seq and (select c.events_table from pipeline.consumers c where c.name = %(name)s::text) is null
    order by e.action = i.action and e.record_pk = i.record_pk desc limit 1 -- legacy tables may have one seq several times
) e on true
