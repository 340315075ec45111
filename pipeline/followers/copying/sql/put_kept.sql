-- Insert the rows that had other values, with the values of the follower's own columns.
insert into {into} ({columns}, {own}) overriding system value
select {staged}, {kept} from pg_temp.pipeline_staged s join pg_temp.pipeline_kept k on {same}
