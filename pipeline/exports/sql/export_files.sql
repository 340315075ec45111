-- The files of one range in order of seq; what a version before has written is still in the range itself.
select f.path, f.dataset, s.version as schema, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq
from pipeline.export_files f
join pipeline.export_schemas s on s.id = f.schema_id
where f.export_id = %(id)s
union all
select f.path, f.dataset, f.schema, f.rows, f.bytes, f.sha256, f.first_seq, f.last_seq
from pipeline.exports e
cross join jsonb_to_recordset(e.files) f (path text, dataset text, schema int, rows bigint, bytes bigint, sha256 text,
    first_seq bigint, last_seq bigint)
where e.id = %(id)s
order by first_seq, path
