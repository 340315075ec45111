-- Read the newest seq that an events table has or had, independently of its sequence; 0 before the first event.
select greatest(
    (select max(e.seq) from {events} e),
    (select max(t.last_seq) from pipeline.events_tables t where t.name = %(name)s),
    (select max(p.last_seq) from pipeline.shuffle_progress p
    where %(name)s = (select r.events_table from pipeline.routes r where r.source_id = p.source_id order by r.id desc limit 1)),
    0)
