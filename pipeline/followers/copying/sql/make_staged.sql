-- The rows of a copy, until the table's own are replaced by them.
create temporary table pipeline_staged as select {columns} from {table} t with no data
