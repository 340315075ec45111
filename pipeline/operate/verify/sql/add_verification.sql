-- Store the result of a verification, and keep the newest fifty older results.
with old as (
    delete from pipeline.verifications v where v.source_id = %(source)s and v.id <= (
        select o.id from pipeline.verifications o where o.source_id = %(source)s order by o.id desc offset 49 limit 1)
)
insert into pipeline.verifications (
    source_id, asked_by, started_at, share, tables_compared, tables_refused, rows, differing, unknown, verified_through, tables)
values (%(source)s, %(asked_by)s, %(started_at)s, %(share)s, %(compared)s, %(refused)s, %(rows)s, %(differing)s, %(unknown)s,
    %(verified_through)s, %(tables)s)
