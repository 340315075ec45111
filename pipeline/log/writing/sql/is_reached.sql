-- Return a row if everything before this worker's part is staged.
select from pipeline.reached_workers r where r.source_id = %(source)s and r.worker = %(worker)s
