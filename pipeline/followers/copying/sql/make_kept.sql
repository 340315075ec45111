-- Create a table for the follower's own columns of rows that get other values, with the keys of the rows.
create temporary table pipeline_kept on commit drop as select {kept} from {table} t with no data
