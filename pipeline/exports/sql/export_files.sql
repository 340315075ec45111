-- The files of one range in order of seq: its own, and those that a compaction has made of its files and
-- others. An earlier version has written the files into the range itself.
select f.path, f.dataset, s.version as schema, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq
from pipeline.export_files f
join pipeline.export_schemas s on s.id = f.schema_id
where f.export_id = %(id)s and f.merged = 0
union all
select f.path, f.dataset, s.version as schema, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq
from pipeline.exports e
join pipeline.export_files f
    on f.lake_id = e.lake_id and f.merged > 0 and f.last_seq > e.after_seq and f.first_seq <= e.upto_seq
join pipeline.export_schemas s on s.id = f.schema_id
where e.id = %(id)s and e.state = 'committed'
union all
select f.path, f.dataset, f.schema, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq
from pipeline.exports e
cross join jsonb_to_recordset(e.files) f (path text, dataset text, schema int, rows bigint, bytes bigint, sha256 text,
    first_seq bigint, last_seq bigint)
where e.id = %(id)s
order by first_seq, path
