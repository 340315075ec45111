-- Whether a segment is free.
select exists (select from pipeline.segments where state = 'free')
