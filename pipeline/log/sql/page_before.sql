-- The wanted events before a seq, the newest first, as JSON: `rows` of them, or until they take `bytes`, among the `span`
-- seqs before the newest. `searched`: among the events from this seq on, no other is wanted, unless the page is full.
-- Events of one seq, as legacy tables have them, are never split.
with bounds as materialized (
    select (select b.seq from {events} b where b.seq < %(before)s::bigint order by b.seq desc limit 1) as newest,
        (select coalesce(max(seq), 0) from {events}) as head
), page as materialized (
    select e.seq, row_to_json(e)::text as event
    from (
        select * from {events}
        where seq < %(before)s::bigint and (seq, 0) > ((select newest - %(span)s::bigint from bounds), 0)
        order by seq desc offset 0
    ) e
    where (cardinality(%(tables)s::text[]) = 0
            or e.source_table_schema || '.' || e.source_table_name like any (%(tables)s::text[]))
        and (cardinality(%(actions)s::text[]) = 0 or e.action = any (%(actions)s::text[]))
    order by e.seq desc
    fetch first (%(rows)s::int) rows with ties
), sized as (
    select count(*) over () as found,
        coalesce(sum(octet_length(event)) over (order by seq desc groups between unbounded preceding and 1 preceding), 0)
            as before, p.*
    from page p
)
select b.head, b.newest - %(span)s::bigint + 1 as searched,
    exists (select from {events} o where o.seq <= b.newest - %(span)s::bigint) as has_older, s.found, s.seq, s.event
from bounds b left join sized s on s.before < %(bytes)s::bigint
order by s.seq desc
