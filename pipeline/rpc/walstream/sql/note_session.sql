-- How a session is; `ended`: it has ended, and owes something.
update pipeline.walstream_sessions
set unacknowledged = %(unacknowledged)s, sent_seq = %(sent)s,
    ended_at = case when %(ended)s then coalesce(ended_at, clock_timestamp()) end
where id = %(id)s
