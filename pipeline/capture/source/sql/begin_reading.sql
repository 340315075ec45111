-- Tables that join from now on are read.
update pipeline.sources set reads_tables = true where id = %(source)s
