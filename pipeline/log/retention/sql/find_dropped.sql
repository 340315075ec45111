-- What was dropped from an events table, and the partition that is being dropped.
select dropped_below as below, dropped_at as at, dropping::bigint as dropping, dropping_since as since
from pipeline.retention where events_table = %(table)s
