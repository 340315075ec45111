-- What is still to be made once the tables are copied; null: nothing.
insert into pipeline_follower.beginnings as b (source_database_id, follower, registration, after_copy)
values (%(source)s, %(follower)s, 0, %(after_copy)s)
on conflict (source_database_id, follower) do update
    set after_copy = coalesce(b.after_copy, '') || excluded.after_copy
