-- But not across a truncate, which waits for all items before it: where there may be one, among `barriers`.
when exists (select from barriers b where b.source_table_oid = r.source_table_oid
    and b.seq > r.queued_seq and b.seq < excluded.seq) then excluded.seq
