-- Record that the tables of a follower begin with this registration.
insert into pipeline_follower.beginnings (source_database_id, follower, registration)
values (%(source)s, %(follower)s, %(registration)s)
on conflict (source_database_id, follower) do update
    set registration = excluded.registration, began_at = excluded.began_at
