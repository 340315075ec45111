-- A source that was never seen before.
insert into pipeline.sources (id, epoch, system_identifier, database_name, slot, options)
values (%(id)s, %(epoch)s, %(system_identifier)s, %(database_name)s, %(slot)s, %(options)s)
