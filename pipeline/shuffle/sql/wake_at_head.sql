-- Wake the shuffler, which makes items of events, where a consumer wants them.
select pg_notify('pipeline_staged', '') where exists (select from pipeline.consumer_progress)
