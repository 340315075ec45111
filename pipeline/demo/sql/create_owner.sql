-- The owner of the shop. The role that replicates makes its own publications and puts the owner's tables into them.
do $$
declare made name;
begin
    if to_regrole('shop') is null then
        create role shop login;
    end if;
    for made in select pubname from pg_publication loop  -- in a data directory of an older version
        execute format('alter publication %I owner to pipeline', made);
    end loop;
end $$;
grant create on database source to shop, pipeline;
grant shop to pipeline;
alter default privileges for role shop grant select on tables to pipeline_reader;
alter default privileges for role shop grant usage on schemas to pipeline_reader
