-- What is the follower's own in rows that get other values, by their keys.
create temporary table pipeline_kept on commit drop as select {kept} from {table} t with no data
