-- Whether tables that join are read; not those that were captured before this was known.
select coalesce(reads_tables, true) from pipeline.sources where id = %(source)s
