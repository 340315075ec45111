-- Settings for this transaction: Postgres finds items by their keys, whatever the statistics of a queue say, and the
-- commit does not wait for the disk.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
    set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
    set_config('enable_material', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('synchronous_commit', 'off', true)
