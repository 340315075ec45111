-- The table for rows that are passed on, until they are in their own.
create temporary table pipeline_given ({operation} text not null, {given}) on commit drop
