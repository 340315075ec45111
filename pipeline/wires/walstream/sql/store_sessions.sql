-- Store the state of sessions; a session that has ended becomes a hold.
update pipeline.walstream_sessions s
set acknowledged_seq = n.acknowledged, sent_seq = n.sent, unacknowledged = n.unacknowledged,
    ended_at = case when n.ended then clock_timestamp() end
from unnest(%(id)s::bigint[], %(acknowledged)s::bigint[], %(sent)s::bigint[], %(unacknowledged)s::bigint[],
    %(ended)s::boolean[]) n (id, acknowledged, sent, unacknowledged, ended)
where s.id = n.id
