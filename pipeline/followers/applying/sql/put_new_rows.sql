-- Insert those that were not there to be taken out, as far as all of them is known.
insert into {table} as t {columns} overriding system value
select {values} from pg_catalog.json_to_recordset($1::json) as s({given})
where s.{left} is null and not exists (select from pg_temp.pipeline_carried c where c.seq = s.{seq})
