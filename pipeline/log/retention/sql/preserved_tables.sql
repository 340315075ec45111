-- List tables whose rows can have values that an update leaves out, with facts about their columns. `fixed`: never moved
-- out to TOAST; `plain`: stored in no more bytes than their text has; `growth`: how many times longer than its text any
-- other value may be, null when that is not known. Built-in types have the same oids everywhere.
select p.source_id as source, p.epoch, r.table_oid as oid,
    coalesce(array_agg(c.name) filter (where c.fixed), '{}') as fixed,
    coalesce(array_agg(c.name) filter (where c.plain), '{}') as plain,
    count(*)::integer as columns, max(c.growth) filter (where not coalesce(c.unknown, true)) as growth,
    bool_or(coalesce(c.unknown, true)) as unknown
from pipeline.shuffle_progress p
join (select distinct source_id, epoch, table_oid from pipeline.relations where key_columns <> '{}') r
    on r.source_id = p.source_id and r.epoch = p.epoch and r.table_oid <> 0
cross join lateral (
    select e ->> 'name' as name, bool_and(coalesce(t.typlen > 0, false)) as fixed,
        bool_and((e ->> 'type_oid')::oid in (17, 25, 114, 142, 1042, 1043, 1560, 1562, 1700)) as plain,
        max(case when t.typlen > 0 or t.oid in (17, 25, 114, 142, 1042, 1043, 1560, 1562, 1700) then 1 else 8 end) as growth,
        bool_or(t.oid is null or t.typlen > 16 or t.typelem in (19, 603) or t.typtype = 'p') as unknown
    from pipeline.relations f
    cross join jsonb_array_elements(f.columns) e
    left join pg_catalog.pg_type t on t.oid = (e ->> 'type_oid')::oid and t.oid < 10000
    where f.source_id = r.source_id and f.epoch = r.epoch and f.table_oid = r.table_oid
    group by 1
) c
where exists (
    -- With replica identity full an update has all values.
    select from pipeline.relations f
    where f.source_id = r.source_id and f.epoch = r.epoch and f.table_oid = r.table_oid and f.replica_identity <> 'f'
        and not exists (select from pipeline.relations n where n.source_id = f.source_id and n.epoch = f.epoch
            and n.relation_oid = f.relation_oid and n.id > f.id)
)
group by 1, 2, 3
having not bool_and(c.fixed)
order by 1, 3
