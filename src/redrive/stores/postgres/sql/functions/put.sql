-- Letters in: one call, one transaction, one round trip.
--
-- SET enable_… = off: PostgreSQL plans these functions once, perhaps while the table is empty, and they must use the
-- indexes when it is not.

-- Keep letters. Return those that were not kept because they are duplicates: their number and the id that is kept.
CREATE OR REPLACE FUNCTION {schema}.outbox_put(
    p_call bigint, p_again boolean, p_ids uuid[], p_queues text[], p_kinds text[], p_payloads bytea[],
    p_content_types text[], p_keys text[], p_idempotency_keys text[], p_priorities smallint[], p_delays bigint[],
    p_dues bigint[], p_policies text[], p_generations bigint[], p_origins text[], p_handlers text[],
    p_tenants text[], p_extras bytea[], p_odds boolean[], p_wide boolean[], p_rich jsonb, p_now bigint
) RETURNS TABLE (place bigint, kept text) LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_token bigint;
    v_ordered text[];
    v_limited text[];
    v_dead bigint[];
    v_seqs bigint[];  -- one for every draft; it tells which of them are kept, because ids may repeat
    v_kept bigint;
    v_name text;
    v_meant jsonb;  -- the duplicates of this call: see outbox_wait
BEGIN
    PERFORM {schema}.outbox_durable();
    SELECT array_agg(name) FILTER (WHERE ordered), array_agg(name ORDER BY name) FILTER (WHERE max_size IS NOT NULL)
      INTO v_ordered, v_limited FROM {schema}.outbox_queues WHERE name = ANY (p_queues);
    IF p_rich IS NOT NULL THEN
        SELECT array_agg(r.n) INTO v_dead FROM jsonb_to_recordset(p_rich) AS r (n bigint, failure jsonb, retry boolean)
         WHERE r.failure IS NOT NULL AND r.retry IS NOT TRUE;
    END IF;
    IF v_ordered IS NOT NULL THEN
        PERFORM {schema}.outbox_lock_arrivals(p_queues, p_keys);
    END IF;
    IF v_limited IS NOT NULL THEN  -- one call after the other: each counts what the calls before it have put
        PERFORM pg_advisory_xact_lock(hashtextextended(l.name, 17)) FROM unnest(v_limited) AS l (name);
        PERFORM {schema}.outbox_refuse_overflow(p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide, v_dead);
    END IF;
    v_token := nextval('{schema}.outbox_token');
    v_seqs := ARRAY(SELECT nextval('{schema}.outbox_seq') FROM generate_series(1, cardinality(p_ids)));
    WITH kept AS (
        INSERT INTO {schema}.outbox (
            seq, token, act, due_at, occurred_at, cycle_at, updated_at, generation, held, priority, lane, odd, queue_wide, id,
            queue, event_type, key, idempotency_key, source, target, workspace_id, policy, content_type, payload, extras, why)
        SELECT d.seq, v_token, p_call, coalesce({schema}.outbox_at(d.due), v_now + coalesce(d.delay, 0) * interval '1 microsecond'),
               v_now, v_now, v_now, d.generation, (d.lane > 0)::integer, coalesce(d.priority, 1), d.lane,
               coalesce(d.odd, false), coalesce(d.wide, false), d.id, d.queue,
               d.kind, d.key, d.idempotency_key, d.origin, d.handler, d.tenant, d.policy,
               coalesce(d.content_type, 'application/json'), d.payload,
               d.extras, '{why_enqueued}'
          FROM (SELECT u.*, CASE WHEN v_ordered IS NOT NULL AND u.key IS NOT NULL AND u.queue = ANY (v_ordered)
                                      AND (v_dead IS NULL OR u.n <> ALL (v_dead)) THEN 3 ELSE 0 END AS lane
                  FROM unnest(v_seqs, p_ids, p_queues, p_kinds, p_payloads, p_content_types, p_keys, p_idempotency_keys,
                              p_priorities, p_delays, p_dues, p_policies, p_generations, p_origins, p_handlers,
                              p_tenants, p_extras, p_odds, p_wide)
                       WITH ORDINALITY AS u (seq, id, queue, kind, payload, content_type, key, idempotency_key, priority,
                                             delay, due, policy, generation, origin, handler, tenant, extras, odd, wide,
                                             n)
                 ORDER BY u.n) AS d
        ON CONFLICT DO NOTHING RETURNING queue, event_type),
    counted AS (
        INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
        SELECT k.queue, k.event_type, s.status, k.n
          FROM (SELECT queue, event_type, count(*) AS n FROM kept GROUP BY 1, 2) AS k
         CROSS JOIN (VALUES ('enqueued'), ('pending')) AS s (status))
    SELECT count(*) INTO v_kept FROM kept;
    IF p_rich IS NOT NULL AND v_kept > 0 THEN  -- after the insert: a duplicate stays one, even if it would wait for others
        SELECT jsonb_object_agg(p_ids[d.n], jsonb_build_array(d.n, d.kept)) INTO v_meant FROM {schema}.outbox_duplicates(
            p_call, p_again, p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide, v_seqs) AS d;
        PERFORM {schema}.outbox_wait(p_rich, v_seqs, v_token, coalesce(v_meant, '{}'), false);
        PERFORM {schema}.outbox_enrich(p_rich, v_seqs, v_now);
    END IF;
    IF v_ordered IS NOT NULL THEN
        FOREACH v_name IN ARRAY v_ordered LOOP
            PERFORM {schema}.outbox_place_free(v_name, p_keys);
        END LOOP;
    END IF;
    IF v_kept < cardinality(p_ids) THEN
        RETURN QUERY SELECT d.n, d.kept FROM {schema}.outbox_duplicates(
            p_call, p_again, p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide, v_seqs) AS d;
    END IF;
END $$;

-- Raise RD507 if one of these queues has no room for those of these drafts that are new. Dead ones need no room.
CREATE OR REPLACE FUNCTION {schema}.outbox_refuse_overflow(
    p_ids uuid[], p_queues text[], p_kinds text[], p_idempotency_keys text[], p_wide boolean[], p_dead bigint[]
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_full record;
BEGIN
    SELECT q.name, q.max_size INTO v_full
      FROM (SELECT d.queue, count(DISTINCT coalesce(
                       CASE WHEN d.wide THEN '' ELSE d.kind END || E'\x1f' || d.idempotency_key, d.id::text)) AS n
              FROM unnest(p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide)
                   WITH ORDINALITY AS d (id, queue, kind, idempotency_key, wide, n)
             WHERE (p_dead IS NULL OR d.n <> ALL (p_dead))
               AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.id = d.id)
               AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o
                                WHERE o.queue = d.queue AND o.event_type = d.kind
                                  AND o.idempotency_key = d.idempotency_key)
               AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o
                                WHERE d.wide AND o.queue_wide AND o.queue = d.queue
                                  AND o.idempotency_key = d.idempotency_key)
             GROUP BY d.queue) AS fresh
      JOIN {schema}.outbox_queues AS q ON q.name = fresh.queue
     WHERE q.max_size IS NOT NULL
       AND {schema}.outbox_counted(q.name, '{pending,in_flight}') + fresh.n > q.max_size LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'queue % is full', v_full.name
            USING ERRCODE = 'RD507', DETAIL = jsonb_build_array(v_full.name, v_full.max_size)::text;
    END IF;
END $$;

-- The few drafts that were in a spool, or failed elsewhere: dead at once, or (retry) pending. Each is looked up by its seq
-- (LATERAL … LIMIT 1): after most letters were removed the planner takes the table for empty, and would go through it
-- once for each of them.
CREATE OR REPLACE FUNCTION {schema}.outbox_enrich(p_rich jsonb, p_seqs bigint[], p_now timestamptz)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = on SET enable_mergejoin = off SET jit = off
AS $$
BEGIN
    UPDATE {schema}.outbox AS o SET occurred_at = least(o.occurred_at, {schema}.outbox_at(r.accepted_us))
      FROM jsonb_to_recordset(p_rich) AS r (n bigint, accepted_us bigint)
     WHERE r.accepted_us IS NOT NULL AND o.seq = p_seqs[r.n] AND o.seq = ANY (p_seqs);
    IF NOT EXISTS (SELECT 1 FROM jsonb_to_recordset(p_rich) AS r (failure jsonb) WHERE r.failure IS NOT NULL) THEN
        RETURN;
    END IF;
    UPDATE {schema}.outbox AS o SET attempts = r.attempts  -- first: it stands in the line of the attempt log
      FROM jsonb_to_recordset(p_rich) AS r (n bigint, attempts integer, retry boolean)
     WHERE r.retry AND o.seq = p_seqs[r.n] AND o.seq = ANY (p_seqs);
    PERFORM {schema}.outbox_fail(
        (SELECT jsonb_agg(r.failure || jsonb_build_object('ref', o.seq, 'token', o.token))
           FROM jsonb_to_recordset(p_rich) AS r (n bigint, failure jsonb)
          CROSS JOIN LATERAL (SELECT n.seq, n.token FROM {schema}.outbox AS n WHERE n.seq = p_seqs[r.n] LIMIT 1) AS o
          WHERE r.failure IS NOT NULL), 0, p_now, 'pending');
    -- The draft says how often it was tried, and when it failed.
    UPDATE {schema}.outbox AS o
       SET attempts = r.attempts, failed_at = CASE WHEN r.retry IS NOT TRUE THEN coalesce(r.failed, o.failed_at) END,
           first_failed_at = coalesce(r.first_failed, r.failed, o.first_failed_at)
      FROM (SELECT p_seqs[d.n] AS seq, d.attempts, d.retry,
                   timestamptz 'epoch' + d.failed_us * interval '1 microsecond' AS failed,
                   timestamptz 'epoch' + d.first_failed_us * interval '1 microsecond' AS first_failed
              FROM jsonb_to_recordset(p_rich)
                AS d (n bigint, failure jsonb, attempts integer, retry boolean, failed_us bigint, first_failed_us bigint)
             WHERE d.failure IS NOT NULL AND d.failure <> 'null'::jsonb) AS r
     WHERE o.seq = r.seq AND o.seq = ANY (p_seqs) AND o.status || '' IN ('failed', 'pending');
END $$;

-- The drafts that were not kept under their seq in p_seqs, and what is kept instead. Retention may have removed that
-- between the conflict and this look. Then nothing is kept, and the caller asks again (serialization failure).
CREATE OR REPLACE FUNCTION {schema}.outbox_duplicates(
    p_call bigint, p_again boolean, p_ids uuid[], p_queues text[], p_kinds text[], p_idempotency_keys text[],
    p_wide boolean[], p_seqs bigint[]
) RETURNS TABLE (n bigint, kept text) LANGUAGE plpgsql
AS $$
BEGIN
    FOR n, kept IN
        -- A later draft of the call may be kept under the id of one whose key was taken.
        SELECT d.n, coalesce(CASE WHEN same.seq < d.seq THEN same.id END, alike.id, akin.id, same.id)::text
          FROM (SELECT u.*, row_number() OVER (PARTITION BY u.id ORDER BY u.n) AS nth
                  FROM unnest(p_seqs, p_ids, p_queues, p_kinds, p_idempotency_keys, p_wide)
                       WITH ORDINALITY AS u (seq, id, queue, kind, idempotency_key, wide, n)) AS d
          LEFT JOIN {schema}.outbox AS mine ON mine.seq = d.seq
          LEFT JOIN {schema}.outbox AS same ON same.id = d.id
          LEFT JOIN {schema}.outbox AS alike ON alike.queue = d.queue AND alike.event_type = d.kind
                                            AND alike.idempotency_key = d.idempotency_key
          LEFT JOIN {schema}.outbox AS akin ON d.wide AND akin.queue_wide AND akin.queue = d.queue
                                           AND akin.idempotency_key = d.idempotency_key
         WHERE mine.seq IS NULL AND NOT (p_again AND d.nth = 1 AND same.act IS NOT DISTINCT FROM p_call)
    LOOP
        IF kept IS NULL THEN
            RAISE EXCEPTION 'the letter kept under the same key was removed meanwhile' USING ERRCODE = '40001';
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
