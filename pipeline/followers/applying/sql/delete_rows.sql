-- Delete rows by their keys; returns the seq of the first that had to be there and is not.
with given as materialized (select * from pg_catalog.json_to_recordset($1::json) as s({given})),
done as (delete from {table} t using {found} where {same} returning s.{seq} as seq)
select min(g.{seq}) from given g where g.{strict} and not exists (select from done d where d.seq = g.{seq})
