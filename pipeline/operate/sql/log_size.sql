-- Bytes that an events table takes on disk, with its indexes.
select coalesce(sum(pg_total_relation_size(t.relid)), pg_total_relation_size(%(table)s::regclass))::bigint
from pg_partition_tree(%(table)s::regclass) t
