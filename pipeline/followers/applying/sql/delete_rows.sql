-- Delete rows by their keys; returns the seq of the first missing row that must exist.
with given as {materialized} (select * from {elements}),
done as (delete from {table} t using {found} where {same} returning s.{seq} as seq)
select min(m.seq) from (select g.{seq} from given g where g.{strict} except all select d.seq from done d) m (seq)
