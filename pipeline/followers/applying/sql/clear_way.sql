-- Delete rows that have a unique value of one of which it is not said what it was before: after a gap, what has become of
-- them comes later in the log.
delete from {table} t using {elements} where not coalesce(s.{strict}, false) and ({in_the_way})
