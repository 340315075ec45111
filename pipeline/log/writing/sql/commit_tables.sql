-- Store the progress of the transactions in these tables, which wait from now on; no row if a newer worker has taken over.
-- Returns true if the run may continue: false if an earlier table of the run was moved.
with fenced as (
    {set_progress}
    where source_id = %(source)s and worker = %(worker)s and generation = %(generation)s and epoch = %(epoch)s
    returning 1
), added as (
    insert into pipeline.adopted_tables (source_id, run, generation, events_table, table_name, attaches, ends, first_seq,
        last_seq, first_lsn, last_lsn, relations)
    select %(source)s, %(run)s, %(generation)s, %(name)s, t.name, %(attaches)s, t.ends, t.first_seq, t.last_seq,
        t.first_lsn, t.last_lsn, %(relations)s
    from unnest(%(names)s::text[], %(ends)s::boolean[], %(first_seqs)s::bigint[], %(last_seqs)s::bigint[],
        %(first_lsns)s::bigint[], %(last_lsns)s::bigint[]) as t (name, ends, first_seq, last_seq, first_lsn, last_lsn)
    where exists (select from fenced)
)
select (select a.moved_run < %(run)s from pipeline.adoptions a where a.source_id = %(source)s),
    pg_notify('pipeline_staged', '')
from fenced
