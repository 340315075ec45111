-- Create a table for the rows of a copy, until they replace the table's rows.
create temporary table pipeline_staged as select {columns} from {table} t with no data
