-- Captured tables that the log does not have whole, and that nobody reads.
select s."table", s.state, s.reason from pipeline.snapshots s
where s.source_id = %(source)s and s.state in ('not read', 'failed', 'cancelled')
order by s."table" limit %(most)s
