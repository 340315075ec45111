-- Put rows back that were taken out, with their new values, and the others that they had.
insert into {table} as t {columns} overriding system value
select {values} from pg_catalog.json_to_recordset($1::json) as s({given})
join pg_temp.pipeline_carried c on c.seq = s.{seq}
