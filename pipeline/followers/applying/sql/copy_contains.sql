-- Whether a copy contains the event e. A Begin has the lower half of an xid: the other is that of the xid nearest to the
-- snapshot's next one, which holds for what committed before the copy ended. LSNs of other epochs are of other histories.
case when not {is_copied} or e.source_epoch > {source_epoch} then false
    when e.source_epoch < {source_epoch} then true
    when e.commit_lsn < {lsn} then coalesce(pg_visible_in_snapshot(
        ({next_xid} - (mod({next_xid} - e.xid + 2147483648, 4294967296) - 2147483648))::text::xid8, {snapshot}), false)
    else false end
