-- Searching the texts of errors, quickly where the server has the extension pg_trgm.

-- Try to make the index that `error:~…` uses; return whether it is there. Without the extension, or the right to
-- create it, searching looks at every dead letter's text. May be called again once that has changed; moves of
-- letters wait while the index is built.
CREATE FUNCTION {schema}.outbox_search() RETURNS boolean LANGUAGE plpgsql
AS $$
DECLARE
    v_where text;
BEGIN
    IF to_regclass('{schema}.outbox_failed_error') IS NOT NULL THEN
        RETURN true;
    END IF;
    BEGIN
        CREATE EXTENSION IF NOT EXISTS pg_trgm;
    EXCEPTION WHEN OTHERS THEN  -- not installed on this server, or not ours to create
        NULL;
    END;
    SELECT n.nspname INTO v_where FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
     WHERE e.extname = 'pg_trgm';
    IF v_where IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE INDEX outbox_failed_error ON {schema}.outbox USING gin (last_error %I.gin_trgm_ops) '
                   'WHERE status = ''failed''', v_where);
    -- The few texts with a character beyond ASCII that has an ASCII letter as its lower case.
    CREATE INDEX outbox_failed_folded ON {schema}.outbox (seq) WHERE status = 'failed' AND last_error ~ U&'[\0130\212A]';
    RETURN true;
END $$;

SELECT {schema}.outbox_search();
