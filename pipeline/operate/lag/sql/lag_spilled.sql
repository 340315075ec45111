-- The bytes that decoding had spilled about a minute earlier.
select w.spilled_bytes from pipeline.wal_written w
where w.source_id = %(source)s and w.epoch = %(epoch)s and w.written_at > %(read_at)s::timestamptz - interval '60 seconds'
order by w.lsn limit 1
