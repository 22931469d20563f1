-- Settling: what an attempt came to.
--
-- Tokens of one letter only grow: a settlement takes its number after the claim that it fences, and a claim passes over
-- letters whose number is newer than its own.

-- The attempt log before a line is added: its newest lines, without tracebacks if the new line has one, because a cycle
-- keeps only the newest traceback. What is no JSON array was not written by redrive and counts as empty.
CREATE OR REPLACE FUNCTION {schema}.outbox_log(p_tries jsonb, p_line jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_tries IS NULL OR jsonb_typeof(p_tries) <> 'array' THEN '[]'
                WHEN NOT p_line ? 'traceback' AND jsonb_array_length(p_tries) < {tries} THEN p_tries
                ELSE (SELECT coalesce(jsonb_agg(CASE WHEN p_line ? 'traceback' AND jsonb_typeof(e.one) = 'object'
                                                     THEN e.one - 'traceback' ELSE e.one END ORDER BY e.n), '[]')
                        FROM jsonb_array_elements(p_tries) WITH ORDINALITY AS e (one, n)
                       WHERE e.n > jsonb_array_length(p_tries) - {tries_before}) END
$$;

-- Carry out moves to failed or back to pending; return the seqs of the letters whose claim still holds. p_from is
-- in_flight, or pending for new letters that failed elsewhere: those keep their due time.
-- The array of seqs makes the planner look them up in the index: after most letters were removed it takes the table for
-- empty, and a join alone would go through all of it. `status || ''` keeps it from the partial indexes of a status.
CREATE OR REPLACE FUNCTION {schema}.outbox_fail(p_moves jsonb, p_call bigint, p_now timestamptz, p_from text)
RETURNS SETOF bigint LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = on SET enable_mergejoin = off SET jit = off
AS $$
DECLARE
    v_refs bigint[] := ARRAY(SELECT m.ref FROM jsonb_to_recordset(p_moves) AS m (ref bigint));
    v_token bigint;
    v_seqs bigint[];
    v_firsts bigint[];  -- those that were the first of their lanes
BEGIN
    IF p_moves IS NULL THEN
        RETURN;
    END IF;
    v_token := CASE WHEN p_from = 'pending' THEN NULL ELSE nextval('{schema}.outbox_token') END;
    WITH asked AS MATERIALIZED (
        SELECT * FROM jsonb_to_recordset(p_moves) AS m (
            ref bigint, token bigint, "to" text, why text, delay bigint, uncount integer, loss integer, failed boolean,
            category text, error_type text, error text, fingerprint text, title text, policy text, release text,
            odd boolean, try jsonb)),
    moved AS (
        UPDATE {schema}.outbox AS o
           SET status = m."to", token = coalesce(v_token, o.token), act = CASE WHEN p_call = 0 THEN o.act ELSE p_call END,
               lease_until = NULL, worker = NULL,
               updated_at = p_now, why = m.why, attempts = o.attempts - m.uncount, losses = o.losses + m.loss,
               due_at = CASE WHEN m."to" = 'pending' AND p_from <> 'pending'
                             THEN p_now + m.delay * interval '1 microsecond' ELSE o.due_at END,
               failed_at = CASE WHEN m."to" = 'failed' THEN p_now ELSE o.failed_at END,
               lane = CASE WHEN m."to" = 'failed' THEN least(o.lane, 1::smallint) ELSE o.lane END,
               category = CASE WHEN m.failed THEN m.category ELSE o.category END,
               error_type = CASE WHEN m.failed THEN m.error_type ELSE o.error_type END,
               last_error = CASE WHEN m.failed THEN m.error ELSE o.last_error END,
               fingerprint = CASE WHEN m.failed THEN m.fingerprint ELSE o.fingerprint END,
               applied_policy = coalesce(nullif(m.policy, ''), CASE WHEN NOT m.failed THEN o.applied_policy END),
               first_failed_at = CASE WHEN m.failed THEN coalesce(o.first_failed_at, p_now) ELSE o.first_failed_at END,
               release = coalesce(m.release, o.release), odd = o.odd OR m.odd,
               tries = CASE WHEN m.failed THEN
                   {schema}.outbox_log(o.tries, m.try) || (m.try || jsonb_build_object('attempt', o.attempts, 'at', {schema}.outbox_iso(p_now)))
                   ELSE o.tries END
          FROM asked AS m
         WHERE o.seq = m.ref AND o.seq = ANY (v_refs) AND o.token = m.token AND o.status || '' = p_from
        RETURNING o.seq, o.queue, o.event_type, coalesce(o.category, '') AS last_category,
                  coalesce(o.applied_policy, '') AS last_policy, m.*),
    counted AS (
        INSERT INTO {schema}.outbox_deltas
        SELECT queue, event_type, p_from, '', '', '', '', -count(*) FROM moved GROUP BY 1, 2
        UNION ALL
        SELECT queue, event_type, 'pending', last_category, last_policy, '', '', count(*)
          FROM moved WHERE "to" = 'pending' GROUP BY 1, 2, 4, 5
        UNION ALL
        SELECT queue, event_type, 'failed', category, policy, error_type, fingerprint, count(*)
          FROM moved WHERE "to" = 'failed' GROUP BY 1, 2, 4, 5, 6, 7),
    grouped AS (
        INSERT INTO {schema}.outbox_groups
        SELECT DISTINCT ON (fingerprint) fingerprint, error_type, title, p_now, p_now
          FROM moved WHERE "to" = 'failed' ORDER BY fingerprint
        ON CONFLICT (fingerprint) DO UPDATE SET last_seen_at = excluded.last_seen_at)
    SELECT array_agg(seq) INTO v_seqs FROM moved;
    v_firsts := ARRAY(
        SELECT o.seq FROM {schema}.outbox AS o WHERE o.seq = ANY (v_seqs) AND o.status || '' = 'failed' AND o.lane > 0);
    IF cardinality(v_firsts) > 0 THEN
        PERFORM {schema}.outbox_advance(v_firsts);
    END IF;
    RETURN QUERY SELECT unnest(v_seqs);
END $$;

-- Deliver; return the seqs of the letters whose claim still holds. Each letter is looked up by its seq and locked
-- (LATERAL … LIMIT 1): after most letters were removed the planner takes the table for empty, and a join would go through
-- all of it.
CREATE OR REPLACE FUNCTION {schema}.outbox_deliver(p_refs bigint[], p_tokens bigint[], p_call bigint, p_now timestamptz)
RETURNS bigint[] LANGUAGE plpgsql
AS $$
DECLARE
    v_token bigint := nextval('{schema}.outbox_token');
    v_rows tid[];
    v_seqs bigint[];
    v_lanes boolean;
BEGIN
    v_rows := ARRAY(
        SELECT n.ctid FROM unnest(p_refs, p_tokens) AS c (seq, token)
         CROSS JOIN LATERAL (
               SELECT o.ctid FROM {schema}.outbox AS o
                WHERE o.seq = c.seq AND o.token = c.token AND o.status || '' = 'in_flight'  -- never by the index of leases
                LIMIT 1 FOR NO KEY UPDATE) AS n);
    WITH moved AS (
        UPDATE {schema}.outbox AS o
           SET status = 'delivered', token = v_token, act = p_call, lease_until = NULL, worker = NULL,
               updated_at = p_now, why = '{why_succeeded}'
         WHERE o.ctid = ANY (v_rows)  -- they are locked: no other call can move them
        RETURNING o.seq, o.queue, o.event_type, o.lane),
    counted AS (
        INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
        SELECT m.queue, m.event_type, s.status, m.n * s.sign
          FROM (SELECT queue, event_type, count(*) AS n FROM moved GROUP BY 1, 2) AS m
         CROSS JOIN (VALUES ('in_flight', -1), ('delivered', 1)) AS s (status, sign))
    SELECT array_agg(seq), bool_or(lane > 0) INTO v_seqs, v_lanes FROM moved;
    IF v_seqs IS NOT NULL THEN
        PERFORM {schema}.outbox_let_go(v_seqs);
        IF v_lanes THEN
            PERFORM {schema}.outbox_advance(v_seqs);
        END IF;
    END IF;
    RETURN coalesce(v_seqs, '{}');
END $$;
