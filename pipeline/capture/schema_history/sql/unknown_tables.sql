-- Find those of these relations of which nothing is recorded.
select oid from unnest(%(oids)s::bigint[]) oid
where not exists (
        select from pipeline.relations r
        where r.source_id = %(source)s and r.epoch = %(epoch)s and r.relation_oid = oid)
    and not exists (
        select from pipeline.published_forms p
        where p.source_id = %(source)s and p.epoch = %(epoch)s and p.relation_oid = oid)
