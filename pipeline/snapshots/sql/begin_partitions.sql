-- Begin to store the leaves of a table in this epoch. Leaves that it had until now count as stored, except for a new table.
with gone as (
    delete from pipeline.partitions where source_id = %(source)s and root_oid = %(root)s
)
insert into pipeline.partition_looks as k (source_id, root_oid, epoch, after_relation, after_seqs, unknown)
select %(source)s::uuid, %(root)s::bigint, %(epoch)s::integer,
    coalesce((select max(r.id) from pipeline.relations r where r.source_id = %(source)s and not %(new)s), 0),
    (select coalesce(jsonb_object_agg(e.name, coalesce(e.last_seq, 0)), '{}') from pipeline.events_tables e
        where e.source_id = %(source)s),
    %(unknown)s
on conflict (source_id, root_oid) do update
set epoch = excluded.epoch, after_relation = excluded.after_relation, after_seqs = excluded.after_seqs,
    unknown = excluded.unknown
