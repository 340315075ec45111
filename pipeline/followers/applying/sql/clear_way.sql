-- Delete rows that hold a unique value of a row whose old values are unknown: after a gap, the log tells later what
-- becomes of the deleted rows.
delete from {table} t using {elements} where not coalesce(s.{strict}, false) and ({in_the_way})
