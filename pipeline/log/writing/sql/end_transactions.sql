-- Complete transactions whose rows are all staged already; no row if a newer worker has taken over.
{set_progress}
where source_id = %(source)s and worker = %(worker)s and generation = %(generation)s
returning pg_notify('pipeline_staged', '')
