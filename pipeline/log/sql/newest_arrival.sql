-- Read how many seconds ago the newest row of a table arrived, by its seq.
select extract(epoch from clock_timestamp() - inserted_at)::float8 from {events} order by seq desc limit 1
