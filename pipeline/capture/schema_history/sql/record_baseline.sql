-- Record a table as it is when it is published.
insert into pipeline.published_forms (source_id, epoch, relation_oid, form)
values (%(source)s, %(epoch)s, %(oid)s, %(form)s)
on conflict do nothing
