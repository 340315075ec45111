-- Add a segment for a worker; its table is created next.
insert into pipeline.segments (state, source_id, worker) values ('filling', %(source)s, %(worker)s) returning id
