-- Make retention stop waiting for exports to a lake.
update pipeline.lakes set released_at = now() where directory = %(directory)s and released_at is null returning directory
