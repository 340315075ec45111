-- Read when the newest event of a table was committed at the source.
select committed_at from {events} order by seq desc limit 1
