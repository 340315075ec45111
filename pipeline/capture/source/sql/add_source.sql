-- Store a new source.
insert into pipeline.sources
    (id, epoch, system_identifier, database_name, slot, publications, options, timeline, published)
values (%(id)s, %(epoch)s, %(system_identifier)s, %(database_name)s, %(slot)s, %(publications)s, %(options)s,
    %(timeline)s, %(published)s)
