-- Set the sequence and the count after the rows were copied. Fails if the table or the routes have changed since the writer
-- read them; from now on the locks of the copy and of the watermark prevent changes.
with counted as (
    update pipeline.events_tables set last_seq = %(last_seq)s, events = events + %(rows)s, updated_at = clock_timestamp()
    where source_id = %(source)s and name = %(name)s
)
select setval(%(sequence)s::regclass, %(last_seq)s), set_config('pipeline.written_up_to', (%(last_seq)s)::text, false),
    case when (select max(id) from pipeline.routes where source_id = %(source)s) is distinct from %(routes)s
        or exists (select from pg_class c where c.oid in (%(oid)s::oid, %(partition)s::oid)
            and (c.relrowsecurity
                or c.relhasrules and exists (select from pg_rewrite w where w.ev_class = c.oid)
                or c.relhastriggers and exists (select from pg_trigger g where g.tgrelid = c.oid)))
    then ('no longer as it was looked at, at ' || clock_timestamp())::integer end
