-- A publication that we made, by name and oid.
update pipeline.sources set publications = publications || %(publication)s where id = %(id)s
