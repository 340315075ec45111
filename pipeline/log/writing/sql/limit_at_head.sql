-- Of this transaction: it waits no longer than that for a lock, and its commit is on disk when it returns.
select set_config('lock_timeout', %(timeout)s, true), set_config('synchronous_commit', 'on', true)
