-- Create the temporary table for elements, until they are written to their table.
create temporary table pipeline_given ({operation} text not null, {given}) on commit drop
