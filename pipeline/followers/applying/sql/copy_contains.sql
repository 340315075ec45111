-- True if a copy contains the event e. A Begin message has only the lower half of an xid. The upper half is that of the
-- xid nearest to the snapshot's next xid, which is right for commits before the copy ended. LSNs of different epochs
-- cannot be compared.
case when not {is_copied} or e.source_epoch > {source_epoch} then false
    when e.source_epoch < {source_epoch} then true
    when e.commit_lsn < {lsn} then coalesce(pg_visible_in_snapshot(
        ({next_xid} - (mod({next_xid} - e.xid + 2147483648, 4294967296) - 2147483648))::text::xid8, {snapshot}), false)
    else false end
