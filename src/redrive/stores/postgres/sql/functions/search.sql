-- Searching the texts of errors, quickly where the server has the extension pg_trgm.

-- Return the statements that make the missing indexes. Run each by itself and outside a transaction, because letters go on
-- moving while they are built. Returns none if there is nothing to do, if another session is building one right now, or
-- without the extension or the right to create it: then a search looks at every dead letter's text. May be called any
-- number of times; an index whose building was interrupted is dropped and made again.
CREATE OR REPLACE FUNCTION {schema}.outbox_missing_indexes() RETURNS SETOF text LANGUAGE plpgsql
AS $$
DECLARE
    v_there text[] := ARRAY(
        SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
         WHERE i.indrelid = '{schema}.outbox'::regclass AND i.indisvalid);
    v_where text;
BEGIN
    IF v_there @> '{outbox_failed_error,outbox_failed_folded}'
        OR EXISTS (SELECT 1 FROM pg_stat_progress_create_index WHERE relid = '{schema}.outbox'::regclass) THEN
        RETURN;
    END IF;
    BEGIN
        IF NOT EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm') THEN
            CREATE EXTENSION pg_trgm;
        END IF;
    EXCEPTION WHEN OTHERS THEN  -- not installed on this server, or not ours to create
        RETURN;
    END;
    SELECT n.nspname INTO v_where FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
     WHERE e.extname = 'pg_trgm';
    RETURN QUERY
    SELECT 'DROP INDEX CONCURRENTLY ' || i.indexrelid::regclass FROM pg_index AS i
      JOIN pg_class AS c ON c.oid = i.indexrelid
     WHERE i.indrelid = '{schema}.outbox'::regclass AND NOT i.indisvalid
       AND c.relname IN ('outbox_failed_error', 'outbox_failed_folded');
    IF 'outbox_failed_error' <> ALL (v_there) THEN
        RETURN NEXT 'CREATE INDEX CONCURRENTLY outbox_failed_error ON {schema}.outbox USING gin (last_error '
            || quote_ident(v_where) || '.gin_trgm_ops) WHERE status = ''failed''';
    END IF;
    IF 'outbox_failed_folded' <> ALL (v_there) THEN
        -- The few texts with a character beyond ASCII that has an ASCII letter as its lower case.
        RETURN NEXT 'CREATE INDEX CONCURRENTLY outbox_failed_folded ON {schema}.outbox (seq) '
            'WHERE status = ''failed'' AND last_error ~ U&''[\0130\212A]''';
    END IF;
END $$;

-- A schema that is just being made has no other users yet: it gets these indexes at once.
DO $build$
DECLARE v_statement text;
BEGIN
    IF (SELECT version FROM {schema}.outbox_meta) = 0 THEN
        FOR v_statement IN SELECT * FROM {schema}.outbox_missing_indexes() LOOP
            EXECUTE replace(v_statement, ' INDEX CONCURRENTLY ', ' INDEX ');
        END LOOP;
    END IF;
END $build$;
