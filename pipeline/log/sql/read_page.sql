-- Read the next events that a reader wants after a seq, in its shape, until there are `rows` of them or they take `bytes`,
-- and the seq up to which there are no others: below `upto`, and up to `head`. Events of one seq, as legacy tables have
-- them, are never split.
with bounds as materialized (
    select (select coalesce(max(seq), 0) from {events}) as head,
        -- Behind an event: where the log has jumped, a page that ended between two would end at a seq of events that were lost.
        (select b.seq + 1 from {events} b
         where b.seq < (select min(seq) from {events} where seq > %(after)s::bigint) + %(span)s::bigint
         order by b.seq desc limit 1) as upto
), page as materialized (
    select {columns}
    from (
        -- Separate from the filter, with the bound as a row: a planner that sees a filter, or a range whose end it does not
        -- know, expects few rows, and sorts the whole span instead of reading the page in order.
        select * from {events}
        where seq > %(after)s::bigint and (seq, 0) < ((select upto from bounds), 0)
        order by seq offset 0
    ) e
    where (cardinality(%(tables)s::text[]) = 0
            or e.source_table_schema || '.' || e.source_table_name like any (%(tables)s::text[]))
        and (cardinality(%(within)s::text[]) = 0
            or e.source_table_schema || '.' || e.source_table_name like any (%(within)s::text[]))
        and (cardinality(%(actions)s::text[]) = 0 or e.action = any (%(actions)s::text[]))
    order by e.seq
    fetch first (%(rows)s::int) rows with ties
), sized as (
    select count(*) over () as found,
        coalesce(sum(size) over (order by seq groups between unbounded preceding and 1 preceding), 0) as before, p.*
    from (select {size} as size, page.* from page) p
)
select b.head, b.upto, s.*
from bounds b left join sized s on s.before < %(bytes)s::bigint
order by s.seq
