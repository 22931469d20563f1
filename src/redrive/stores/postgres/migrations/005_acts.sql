-- The operator's writes, many rows at a time. The caller holds the lanes and the rows, checked which verb fits,
-- and writes the audit entry; these functions carry it out.

CREATE FUNCTION {schema}.outbox_replay_rows(
    p_seqs bigint[], p_generation bigint, p_by text, p_reason text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_token bigint := nextval('{schema}.outbox_token');
BEGIN
    INSERT INTO {schema}.outbox_deltas
    SELECT queue, event_type, 'failed', coalesce(category, ''), coalesce(applied_policy, ''), coalesce(error_type, ''),
           coalesce(fingerprint, ''), -count(*) FROM {schema}.outbox WHERE seq = ANY (p_seqs) GROUP BY 1, 2, 4, 5, 6, 7
    UNION ALL
    SELECT queue, event_type, 'pending', '', '', '', '', count(*) FROM {schema}.outbox
     WHERE seq = ANY (p_seqs) GROUP BY 1, 2;
    UPDATE {schema}.outbox AS o
       SET status = 'pending', token = v_token, act = 0, updated_at = p_now, due_at = p_now, cycle_at = p_now,
           attempts = 0, losses = 0, cycles = o.cycles + 1, why = 'replayed', category = NULL, error_type = NULL,
           last_error = NULL, fingerprint = NULL, first_failed_at = NULL, failed_at = NULL, tries = NULL,
           applied_policy = NULL, plan = nullif(p_plan, ''), generation = coalesce(p_generation, o.generation),
           odd = o.odd OR p_odd,
           failure_history =
               CASE WHEN jsonb_typeof(o.failure_history) <> 'array' THEN '[]'  -- somebody else wrote it
                    WHEN jsonb_array_length(o.failure_history) >= 20 THEN o.failure_history - 0
                    ELSE o.failure_history END
               || jsonb_strip_nulls(jsonb_build_object(
                   'attempts', o.attempts, 'losses', nullif(o.losses, 0), 'error_type', nullif(o.error_type, ''),
                   'last_error', nullif(o.last_error, ''), 'category', nullif(o.category, ''),
                   'fingerprint', nullif(o.fingerprint, ''), 'why', nullif(o.why, ''),
                   'first_failed_at', {schema}.outbox_iso(o.first_failed_at),
                   'failed_at', {schema}.outbox_iso(o.failed_at),
                   'tries', CASE WHEN jsonb_typeof(o.tries) = 'array' THEN o.tries END, 'generation', o.generation,
                   'release', o.release, 'replayed_at', {schema}.outbox_iso(p_now), 'replayed_by', nullif(p_by, ''),
                   'reason', nullif(p_reason, ''), 'plan', nullif(p_plan, '')))
     WHERE o.seq = ANY (p_seqs);
    PERFORM {schema}.outbox_line_up(p_seqs);
END $$;

CREATE FUNCTION {schema}.outbox_archive_rows(
    p_seqs bigint[], p_by text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_token bigint := nextval('{schema}.outbox_token');
    v_firsts bigint[] := ARRAY(
        SELECT seq FROM {schema}.outbox WHERE seq = ANY (p_seqs) AND status = 'pending' AND lane = 1);
BEGIN
    PERFORM {schema}.outbox_count_out(p_seqs, 'archived');
    UPDATE {schema}.outbox AS o
       SET status = 'archived', archived_from = o.status, deleted_at = p_now, token = v_token, act = 0,
           updated_at = p_now, why = 'archived by ' || p_by, held = o.held - (o.lane > 1)::integer,
           lane = least(o.lane, 1::smallint), plan = nullif(p_plan, ''), odd = o.odd OR p_odd
     WHERE o.seq = ANY (p_seqs);
    PERFORM {schema}.outbox_advance(v_firsts);
END $$;

CREATE FUNCTION {schema}.outbox_restore_rows(
    p_seqs bigint[], p_by text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_token bigint := nextval('{schema}.outbox_token');
BEGIN
    INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
    SELECT queue, event_type, 'archived', -count(*) FROM {schema}.outbox WHERE seq = ANY (p_seqs) GROUP BY 1, 2;
    UPDATE {schema}.outbox AS o
       SET status = o.archived_from, archived_from = NULL, deleted_at = NULL, token = v_token, act = 0,
           updated_at = p_now, why = 'restored by ' || p_by, plan = nullif(p_plan, ''), odd = o.odd OR p_odd
     WHERE o.seq = ANY (p_seqs);
    INSERT INTO {schema}.outbox_deltas SELECT t.* FROM {schema}.outbox_traits(p_seqs) AS t;
    PERFORM {schema}.outbox_line_up(ARRAY(
        SELECT seq FROM {schema}.outbox WHERE seq = ANY (p_seqs) AND status = 'pending'));
END $$;

CREATE FUNCTION {schema}.outbox_purge_rows(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM {schema}.outbox_count_out(p_seqs, 'purged');
    PERFORM {schema}.outbox_let_go(ARRAY(  -- who began to wait for it unseen must not find it missing
        SELECT seq FROM {schema}.outbox WHERE seq = ANY (p_seqs) AND status = 'delivered'));
    DELETE FROM {schema}.outbox WHERE seq = ANY (p_seqs);
    DELETE FROM {schema}.outbox_waits WHERE seq = ANY (p_seqs);
END $$;

-- What these letters are counted by, and how many they are.
CREATE FUNCTION {schema}.outbox_traits(p_seqs bigint[])
RETURNS TABLE (queue text, kind text, status text, category text, policy text, error_type text, fingerprint text,
               n bigint) LANGUAGE sql STABLE
AS $$
    SELECT o.queue, o.event_type, o.status, coalesce(t.category, ''), coalesce(t.applied_policy, ''),
           coalesce(t.error_type, ''), coalesce(t.fingerprint, ''), count(*)
      FROM {schema}.outbox AS o LEFT JOIN {schema}.outbox AS t ON t.seq = o.seq AND o.status = 'failed'
     WHERE o.seq = ANY (p_seqs) GROUP BY 1, 2, 3, 4, 5, 6, 7
$$;

-- Count letters from what they are to *p_status*.
CREATE FUNCTION {schema}.outbox_count_out(p_seqs bigint[], p_status text) RETURNS void LANGUAGE sql
AS $$
    WITH before AS MATERIALIZED (SELECT t.* FROM {schema}.outbox_traits(p_seqs) AS t)
    INSERT INTO {schema}.outbox_deltas
    SELECT queue, kind, status, category, policy, error_type, fingerprint, -n FROM before
    UNION ALL
    SELECT queue, kind, p_status, '', '', '', '', sum(n) FROM before GROUP BY 1, 2
$$;

-- Of the next *p_limit* groups forget those that no failed or archived letter belongs to and that were not seen
-- for a day. Whoever fails with one meanwhile makes it seen, under its lock, and it stays.
CREATE FUNCTION {schema}.outbox_forget_groups(p_limit integer, p_now timestamptz) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_page text[] := ARRAY(
        SELECT fingerprint FROM {schema}.outbox_groups
         WHERE fingerprint > (SELECT groups_broom FROM {schema}.outbox_meta) ORDER BY fingerprint LIMIT p_limit);
BEGIN
    DELETE FROM {schema}.outbox_groups AS g
     WHERE g.fingerprint = ANY (v_page) AND g.last_seen_at <= p_now - interval '1 day'
       AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'failed')
       AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.fingerprint = g.fingerprint AND o.status = 'archived');
    UPDATE {schema}.outbox_meta
       SET groups_broom = CASE WHEN cardinality(v_page) = p_limit THEN v_page[p_limit] ELSE '' END;
END $$;

-- Look at the next *p_limit* letters and remove those past their time, in seconds (NULL: never).
CREATE FUNCTION {schema}.outbox_retain(
    p_delivered double precision, p_archived double precision, p_failed double precision, p_limit integer, p_now bigint
) RETURNS integer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_last bigint;
    v_seen integer;
    v_over bigint[];
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('{schema}.outbox_retain', 3)) THEN
        RETURN 0;  -- somebody else holds the broom
    END IF;
    SELECT max(s.seq), count(*), array_agg(s.seq) FILTER (WHERE s.updated_at <= v_now - CASE s.status
               WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived WHEN 'failed' THEN p_failed
               END * interval '1 second')
      INTO v_last, v_seen, v_over
      FROM (SELECT seq, status, updated_at FROM {schema}.outbox
             WHERE seq > (SELECT broom FROM {schema}.outbox_meta) ORDER BY seq LIMIT p_limit) AS s;
    UPDATE {schema}.outbox_meta SET broom = CASE WHEN v_seen = p_limit THEN v_last ELSE 0 END;
    v_over := ARRAY(SELECT o.seq FROM {schema}.outbox AS o  -- looked at again under its lock
                     WHERE o.seq = ANY (v_over) AND o.updated_at <= v_now - CASE o.status
                           WHEN 'delivered' THEN p_delivered WHEN 'archived' THEN p_archived
                           WHEN 'failed' THEN p_failed END * interval '1 second' FOR UPDATE SKIP LOCKED);
    IF cardinality(v_over) > 0 THEN
        PERFORM {schema}.outbox_purge_rows(v_over);
    END IF;
    PERFORM {schema}.outbox_forget_groups(p_limit, v_now);
    DELETE FROM {schema}.outbox_calls WHERE at < now() - interval '1 hour';
    RETURN cardinality(v_over);
END $$;
