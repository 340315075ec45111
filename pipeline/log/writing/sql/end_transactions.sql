-- Transactions whose rows were all staged before are complete; no row when a newer worker has taken over.
{set_progress}
where source_id = %(source)s and worker = %(worker)s and generation = %(generation)s
returning pg_notify('pipeline_staged', '')
