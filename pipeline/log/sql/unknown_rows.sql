-- List the tables with the rows of an events table that have more than twice as many rows as the planner knows of.
select n.nspname, c.relname
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and pg_stat_get_live_tuples(c.oid) > greatest(1000, 2 * c.reltuples)
    and (c.oid = to_regclass(%(table)s) or c.oid in (select relid from pg_partition_tree(to_regclass(%(table)s))))
