-- An events table of a source is known from now on.
insert into pipeline.events_tables (source_id, name, last_seq)
values (%(source)s, %(name)s, nullif(%(last_seq)s::bigint, 0))
on conflict do nothing
