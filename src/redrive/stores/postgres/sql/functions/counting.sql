-- Counts: sums, changes that are not folded into them yet, and what a letter is counted by.

-- How many letters of a queue are in one of these states.
CREATE OR REPLACE FUNCTION {schema}.outbox_counted(p_queue text, p_statuses text[]) RETURNS bigint LANGUAGE sql STABLE
AS $$
    SELECT coalesce(sum(n), 0)::bigint FROM (
        SELECT n FROM {schema}.outbox_tallies WHERE queue = p_queue AND status = ANY (p_statuses)
        UNION ALL
        SELECT n FROM {schema}.outbox_deltas WHERE queue = p_queue AND status = ANY (p_statuses)) AS all_counts
$$;

-- Fold up to p_limit changes into the sums; return how many. Only one caller folds at a time: others return at once.
CREATE OR REPLACE FUNCTION {schema}.outbox_fold(p_limit integer) RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    v_folded integer;
    v_empty text[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.outbox_fold', 3)) THEN
        RETURN 0;
    END IF;
    WITH gone AS (
        DELETE FROM {schema}.outbox_deltas WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM {schema}.outbox_deltas LIMIT p_limit)) RETURNING *),
    summed AS (
        INSERT INTO {schema}.outbox_tallies AS t
        SELECT queue, kind, status, category, policy, error_type, fingerprint, sum(n) FROM gone
         GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(n) <> 0
        ON CONFLICT (md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
                         || E'\x1f' || error_type || E'\x1f' || fingerprint)) DO UPDATE SET n = t.n + excluded.n
        RETURNING n, status, category, policy, md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
                                 || E'\x1f' || error_type || E'\x1f' || fingerprint) AS traits)
    SELECT (SELECT count(*) FROM gone),
           (SELECT array_agg(traits) FROM summed WHERE n = 0 AND (
                       status NOT IN ('pending', 'in_flight') OR category <> '' OR policy <> ''))
      INTO v_folded, v_empty;
    DELETE FROM {schema}.outbox_tallies  -- found by their traits: there is a row for each distinct error
     WHERE md5(queue || E'\x1f' || kind || E'\x1f' || status || E'\x1f' || category || E'\x1f' || policy
               || E'\x1f' || error_type || E'\x1f' || fingerprint) = ANY (v_empty) AND n = 0;
    RETURN v_folded;
END $$;

-- What these letters are counted by, and how many they are: dead ones by their error, pending ones by the category of
-- their last failure and the policy that was applied, if any.
CREATE OR REPLACE FUNCTION {schema}.outbox_traits(p_seqs bigint[])
RETURNS TABLE (queue text, kind text, status text, category text, policy text, error_type text, fingerprint text,
               n bigint) LANGUAGE sql STABLE
AS $$
    SELECT o.queue, o.event_type, o.status,
           CASE WHEN o.status || '' IN ('failed', 'pending') THEN coalesce(o.category, '') ELSE '' END,
           CASE WHEN o.status || '' IN ('failed', 'pending') THEN coalesce(o.applied_policy, '') ELSE '' END,
           CASE WHEN o.status || '' = 'failed' THEN coalesce(o.error_type, '') ELSE '' END,
           CASE WHEN o.status || '' = 'failed' THEN coalesce(o.fingerprint, '') ELSE '' END, count(*)
      FROM {schema}.outbox AS o WHERE o.seq = ANY (p_seqs) GROUP BY 1, 2, 3, 4, 5, 6, 7
$$;

-- Count letters out of what they are and into p_status.
CREATE OR REPLACE FUNCTION {schema}.outbox_count_out(p_seqs bigint[], p_status text) RETURNS void LANGUAGE sql
AS $$
    WITH before AS MATERIALIZED (SELECT t.* FROM {schema}.outbox_traits(p_seqs) AS t)
    INSERT INTO {schema}.outbox_deltas
    SELECT queue, kind, status, category, policy, error_type, fingerprint, -n FROM before
    UNION ALL
    SELECT queue, kind, p_status, '', '', '', '', sum(n) FROM before GROUP BY 1, 2
$$;
