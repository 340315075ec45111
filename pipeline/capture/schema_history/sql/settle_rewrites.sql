-- Settle rewrites of a table whose rows have been written since its values changed without an event.
update pipeline.rewrites set settled_at = now()
where settled_at is null and id = any(%(ids)s)
    and (%(found_before)s::timestamptz is null or found_at <= %(found_before)s
        or epoch = %(epoch)s and from_lsn <= %(lsn)s)
