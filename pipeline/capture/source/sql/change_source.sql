-- Replace everything that is stored of a source.
update pipeline.sources
set epoch = %(epoch)s, system_identifier = %(system_identifier)s, database_name = %(database_name)s, slot = %(slot)s,
    publications = %(publications)s, options = %(options)s, timeline = %(timeline)s, published = %(published)s
where id = %(id)s
