-- Captured tables by state.
select s.state, count(*) from pipeline.snapshots s where s.source_id = %(source)s group by s.state order by s.state
