-- Tells one database of one cluster from every other.
select (select system_identifier from pg_control_system()), current_database()
