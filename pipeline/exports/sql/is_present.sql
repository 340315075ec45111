-- Whether the migration that made the tables of exports was applied.
select to_regclass('pipeline.export_states') is not null
