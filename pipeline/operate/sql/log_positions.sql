-- Up to where each reader of the log has what it needs: consumers, and lakes that exports go to, or will go to.
select 'consumer' as kind, c.name, c.state = 'paused' as paused,
    case c.kind when 'cursor' then c.position else least(
        coalesce(p.folded_seq, c.position),
        (select min(r.seq) - 1 from public.consumer_records r where r.consumer_id = c.id and r.event is null),
        (select min(t.seq) - 1 from pipeline.consumer_touches t where t.consumer_id = c.id)
    ) end as position
from pipeline.consumers c
left join pipeline.consumer_progress p on p.consumer_id = c.id
where %(default)s
union all
select 'lake', l.directory, false, greatest(
    coalesce((select max(e.upto_seq) from pipeline.exports e where e.lake_id = l.id and e.state = 'committed'), 0),
    -- A lake that holds nothing begins with what there is.
    coalesce((
        select r.dropped_below - 1 from pipeline.retention r
        where r.events_table = l.events_table and not exists (
            select from pipeline.exports e where e.lake_id = l.id and e.state = 'committed'
        )
    ), 0)
)
from pipeline.lakes l
where l.events_table = %(table)s and (
    l.released_at is null or exists (
        select from pipeline.exports e where e.lake_id = l.id and e.committed_at > l.released_at
    )
)
union all
select 'lake', %(lake)s::text, false,
    coalesce((select r.dropped_below from pipeline.retention r where r.events_table = %(table)s), 1) - 1
where %(lake)s::text is not null and not exists (select from pipeline.lakes where directory = %(lake)s)
order by 4, 1, 2
