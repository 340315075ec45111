-- Store the place of a range whose marker the stream has brought.
update pipeline.snapshot_ranges
set state = 'placed', relation_id = %(relation)s, commit_lsn = %(commit_lsn)s, xid = %(xid)s,
    committed_at = timestamptz '2000-01-01 00:00:00+00' + %(committed_at)s * interval '1 microsecond'
where token = %(token)s::uuid and state in ('staged', 'placed')
