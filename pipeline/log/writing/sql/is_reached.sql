-- Whether everything before what this worker reads is staged.
select from pipeline.reached_workers r where r.source_id = %(source)s and r.worker = %(worker)s
