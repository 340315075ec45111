-- How many changes of a source the stream has brought so far; of rows that were read from tables it counts none.
select coalesce(sum(changes), 0)::bigint from pipeline.replication_progress where source_id = %(source)s
