-- Store that the log is written here. Run it outside of savepoints: in one, xmin would be that of the savepoint.
update pipeline.identity i
set system_identifier = h.system_identifier, timeline = h.timeline, database_oid = h.database_oid, table_oid = h.table_oid,
    written_by = pg_current_xact_id()::xid
from pipeline.log_place() h
