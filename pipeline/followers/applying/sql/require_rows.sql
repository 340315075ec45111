-- Check that rows exist that have only a key, so nothing is updated; returns the seq of the first missing row.
with given as {materialized} (select * from {elements})
select min(s.{seq}) from given s where s.{strict} and not exists (select from {table} t where {same})
