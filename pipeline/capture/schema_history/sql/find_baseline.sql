-- A table as it was when it was published.
select form from pipeline.published_forms
where source_id = %(source)s and epoch = %(epoch)s and relation_oid = %(oid)s
