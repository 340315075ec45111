-- Create the temporary table for values that the log lacks, while their rows are deleted.
create temporary table pipeline_carried on commit drop as
select 0::bigint as seq {columns} from {table} t with no data
