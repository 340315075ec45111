-- Captured tables that the log does not have whole because reading them failed.
select s.table_oid, s."table" from pipeline.snapshots s
where s.source_id = %(source)s and s.state = 'failed'
order by s."table"
