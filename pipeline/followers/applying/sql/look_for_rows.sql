-- Nothing is left to update in rows that are their key alone; returns the seq of the first that is not there.
with given as {materialized} (select * from {elements})
select min(s.{seq}) from given s where s.{strict} and not exists (select from {table} t where {same})
