-- Record the id of the registration with which a follower begins.
insert into pipeline_follower.beginnings (source_database_id, follower, registration)
values (%(source)s, %(follower)s, %(registration_id)s)
on conflict (source_database_id, follower) do update
    set registration = excluded.registration, began_at = excluded.began_at
