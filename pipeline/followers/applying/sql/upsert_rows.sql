-- Insert rows, or update those that are there.
insert into {table} as t {columns} overriding system value
select {values} from pg_catalog.json_to_recordset($1::json) as s({given})
on conflict ({key}) do {action}
