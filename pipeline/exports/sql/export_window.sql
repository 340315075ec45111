-- How far the lake in a directory is, how far the log is, and which process exports to the lake now.
select (select coalesce(max(seq), 0) from {events}) as head,
    coalesce(exported.upto, 0) as exported_upto,
    (select greatest(e.seq - coalesce(exported.upto, 0), 0)
        - pipeline.seqs_between(%(events_table)s, coalesce(exported.upto, 0), e.seq) from (select coalesce(max(seq), 0) as seq from {events}) e) as jumped,
    coalesce((select max(j.after) from pipeline.seq_jumps j where j.events_table = %(events_table)s), 0) as jump,
    lake.id is not null as known,
    coalesce(exported.upto > coalesce(lake.folded_upto, 0), false) or exists (
        select from pipeline.export_tables t
        where t.lake_id = lake.id and t.waits_since <= now() - make_interval(secs => %(latest_age)s)
    ) as states_behind,
    %(iceberg)s and coalesce(exported.upto > coalesce((
        select i.upto_seq from pipeline.export_iceberg i where i.lake_id = lake.id
    ), 0), false) as iceberg_behind,
    (
        select coalesce((
            select e.holder from pipeline.exports e
            where e.lake_id = lake.id and e.state in ('writing', 'publishing') order by e.id desc limit 1
        ), a.application_name)
        from pipeline.advisory_locks l
        left join pg_stat_activity a on a.pid = l.pid
        where l.key = hashtextextended('pipeline lake ' || lake.id::text, 0)
        limit 1
    ) as holder
from (select) this
left join lateral (
    select l.id, l.folded_upto from pipeline.lakes l
    where l.directory = %(directory)s order by l.created_at desc limit 1
) lake on true
left join lateral (
    select e.upto_seq as upto from pipeline.exports e
    where e.lake_id = lake.id and e.state = 'committed' order by e.upto_seq desc limit 1
) exported on true
