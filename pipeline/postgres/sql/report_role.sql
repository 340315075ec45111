-- Stores the state of a role. `since` changes only if the state or the holder changes.
insert into pipeline.roles as r (role, server, pid, state, reason)
values (%(role)s, %(server)s, %(pid)s, %(state)s, %(reason)s)
on conflict (role) do update
set server = excluded.server, pid = excluded.pid, state = excluded.state, reason = excluded.reason,
    since = case when (r.server, r.pid, r.state) = (excluded.server, excluded.pid, excluded.state)
        then r.since else now() end
