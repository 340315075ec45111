-- A session before it is sent anything: a crash must not make it forgotten.
insert into pipeline.walstream_sessions (claim, server, peer) values (%(claim)s, %(server)s, %(peer)s) returning id
