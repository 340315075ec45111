-- End a part and discard what its worker has staged, because changes before it will always be missing.
with part as (
    delete from pipeline.catchup_parts where source_id = %(source)s and worker = %(worker)s
), progress as (
    delete from pipeline.replication_progress where source_id = %(source)s and worker = %(worker)s
)
update pipeline.segments set state = 'drained'
where source_id = %(source)s and worker = %(worker)s and state in ('filling', 'full')
