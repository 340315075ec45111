-- Return the seq behind which parts of a catch-up may reserve seqs: behind all that are handed out or reserved or have a
-- partition. Each segment checks again that its seqs are free.
select greatest(
    coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0),
    coalesce((select a.from_seq from pipeline.adoptions a where a.source_id = %(source)s), 0),
    coalesce((select max(a.last_seq) from pipeline.adopted_tables a where a.source_id = %(source)s), 0),
    coalesce((
        select max(substring(pg_get_expr(c.relpartbound, c.oid) from 'TO \(''(\d+)''\)')::bigint)
        from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = %(table)s::regclass), 0))
