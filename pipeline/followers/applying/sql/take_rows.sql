-- Delete rows and keep values that the log lacks; returns the seq of the first missing row that must exist.
with given as {materialized} (select * from {elements}),
taken as (delete from {table} t using given s where {same} returning s.{seq} as seq {carried}),
kept as (insert into pg_temp.pipeline_carried select * from taken)
select min(m.seq) from (select g.{seq} from given g where g.{strict} except all select d.seq from taken d) m (seq)
