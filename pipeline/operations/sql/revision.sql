-- The revision the pipeline database is at.
select version_num from pipeline.alembic_version
