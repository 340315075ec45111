-- The next rows of a source by seq, each compared with the row before it, without a sort. The row before the first one
-- is a parameter.
select seq, source_epoch, commit_lsn, commit_idx, xid, committed_at,
    before_seq, before_epoch, before_lsn, before_idx, before_xid, before_committed_at, kind, before_kind, continues,
    commit_lsn is not null and not continues as begins,
    commit_lsn is not null and not continues and seq > before_seq + 1 as skips,
    before_lsn is not null
        and ((source_epoch, commit_lsn, commit_idx) > (before_epoch, before_lsn, before_idx)) is not true as disordered,
    -- A set of annotations marks the rows after it, a clear of them comes after a marked row. Among rows that
    -- were read, the first is at 1 or later, and some are skipped.
    commit_lsn is not null and kind = 'plain' and case
        when continues then commit_idx > before_idx + 1 and before_kind <> 'annotated'
        else commit_idx <> 0 and not (before_lsn is null and %(cut)s::boolean)
    end as gapped,
    continues and (xid is distinct from before_xid or committed_at is distinct from before_committed_at
        or (kind = 'read') <> (before_kind = 'read') or seq <> before_seq + 1) as torn
from (
    select *, coalesce(source_epoch = before_epoch and commit_lsn = before_lsn, false) as continues
    from (
        select *,
            lag(seq, 1, %(seq)s::bigint) over by_seq as before_seq,
            lag(source_epoch, 1, %(source_epoch)s::integer) over by_seq as before_epoch,
            lag(commit_lsn, 1, %(commit_lsn)s::bigint) over by_seq as before_lsn,
            lag(commit_idx, 1, %(commit_idx)s::integer) over by_seq as before_idx,
            lag(xid, 1, %(xid)s::bigint) over by_seq as before_xid,
            lag(committed_at, 1, %(committed_at)s::timestamptz) over by_seq as before_committed_at,
            lag(kind, 1, %(kind)s::text) over by_seq as before_kind
        from (
            -- A retried dead letter is where it was retried, not where it belongs.
            select seq, source_epoch, commit_lsn, commit_idx, xid, committed_at,
                case when action = 'read' or metadata ? 'recovered' then 'read' when transaction_annotations is not null then 'annotated'
                    else 'plain' end as kind
            from {events}
            where source_database_id = %(source)s and seq > %(after)s and seq <= %(head)s
                and (metadata is null or not metadata ? 'retried')
            order by seq fetch first (%(limit)s) rows with ties
        ) next
        window by_seq as (order by seq)
    ) paired
) row
