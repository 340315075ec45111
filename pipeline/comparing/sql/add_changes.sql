-- Add the events that arrived since the last time.
insert into content_changes
select e.source, e.seq, e.source_epoch, e.commit_lsn, e.commit_idx, e.record_pk, e.given_up, e.xid, e.live,
    case when e.live then {checksum} end,
    coalesce((select b.part from content_bounds b where ({key_names_of_change}) <= ({key_names_of_bound})
        order by {key_names_of_bound} limit 1), {last_part}),
    k.*
from (
{changes}
    union all
{given_up}
) e cross join lateral (select {keys}) k ({key_names})
where {within}
