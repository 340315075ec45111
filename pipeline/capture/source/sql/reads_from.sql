-- Of the tables that are captured now only those that joined after it are read; null: all.
select case when reads_tables is false then reads_from end from pipeline.sources where id = %(source)s
