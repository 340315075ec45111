-- A session before it is sent anything, so that a crash forgets no session. It begins behind the position, and holds it
-- there.
insert into pipeline.walstream_sessions (claim, server, peer, acknowledged_seq)
values (%(claim)s, %(server)s, %(peer)s, %(position)s)
returning id
