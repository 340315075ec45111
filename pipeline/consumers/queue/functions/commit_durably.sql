-- Make the commit of this transaction wait for the disk, even if commits of the session do not.
create or replace function pipeline.commit_durably() returns void
language plpgsql set search_path = ''
as $$
begin
    if current_setting('synchronous_commit') = 'off' then
        perform set_config('synchronous_commit', 'on', true);
    end if;
end $$;
revoke execute on function pipeline.commit_durably() from public;
