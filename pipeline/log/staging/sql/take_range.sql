-- Claim the next range to read for this session, with a new token; no row while the most allowed ranges are under way.
-- A range that compares does not count, since no others wait for its rows.
update pipeline.snapshot_ranges
set state = 'reading', token = gen_random_uuid(), reader_pid = pg_backend_pid(),
    reader_start = (select backend_start from pg_stat_activity where pid = pg_backend_pid())
where id = (
    select r.id from pipeline.snapshot_ranges r
    where r.source_id = %(source)s and r.state = 'planned' and r.backfill_id <> all (%(without)s::bigint[])
        and (select count(*) from pipeline.snapshot_ranges u
            where u.source_id = %(source)s and u.state in ('reading', 'staged', 'placed') and not u.compares) < %(most)s
    order by r.id limit 1 for update skip locked
)
returning id, token, epoch, backfill_id, relation_oid, table_oid, file, from_block, until_block, keys, compares, differences
