-- The role of a follower: it makes, alters and writes the tables, and can do nothing else.
create role pipeline_follower login;
alter database shop owner to pipeline_follower;
grant set on parameter session_replication_role to pipeline_follower
