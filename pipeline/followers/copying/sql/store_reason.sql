-- Store why a check stays NOT VALID.
update pipeline_follower.checks set reason = %(reason)s
where source_database_id = %(source)s and follower = %(follower)s and relation = %(relation)s::bigint::oid and name = %(name)s
