-- Which of these transactions are in the log between two seqs.
select distinct xid from {events} where seq > %(after)s and seq <= %(upto)s and xid = any(%(xids)s) and source_epoch = %(epoch)s
