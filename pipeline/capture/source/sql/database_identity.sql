-- Identifies one database of one cluster.
select (select system_identifier from pg_control_system()), current_database()
