-- Take rows out of their table; returns the seq of the first that had to be there and is not.
with given as materialized (select * from pg_catalog.json_to_recordset($1::json) as s({given})),
taken as (delete from {table} t using given s where {same} returning s.{seq} as seq {carried}),
kept as (insert into pg_temp.pipeline_carried select * from taken)
select min(g.{seq}) from given g where g.{strict} and not exists (select from taken d where d.seq = g.{seq})
