-- Letters in, and work: one call each, one transaction, one round trip.
--
-- Tokens of one letter only grow: a settlement's number is taken after the claim it fences, and a claim
-- passes over letters whose number is newer than its own.
-- The planner is told to use the indexes: these functions are planned once, perhaps on an empty table.

-- Keep letters. Return only those that were not kept, as duplicates: their place and the id that is kept.
CREATE FUNCTION {schema}.outbox_put(
    p_call bigint, p_again boolean, p_ids uuid[], p_queues text[], p_kinds text[], p_payloads bytea[],
    p_content_types text[], p_keys text[], p_idempotency_keys text[], p_priorities smallint[], p_delays bigint[],
    p_dues bigint[], p_policies text[], p_generations bigint[], p_origins text[], p_handlers text[],
    p_tenants text[], p_extras bytea[], p_odds boolean[], p_rich jsonb, p_now bigint
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
    v_seqs bigint[];  -- a place for every draft; which of them are kept is told by the place, because ids may repeat
    v_kept bigint;
    v_name text;
    v_meant jsonb;  -- under which id a draft is kept that is a duplicate
BEGIN
    PERFORM {schema}.outbox_durable();
    SELECT array_agg(name) FILTER (WHERE ordered), array_agg(name ORDER BY name) FILTER (WHERE max_size IS NOT NULL)
      INTO v_ordered, v_limited FROM {schema}.outbox_queues WHERE name = ANY (p_queues);
    IF p_rich IS NOT NULL THEN
        SELECT array_agg(r.n) FILTER (WHERE r.failure IS NOT NULL) INTO v_dead
          FROM jsonb_to_recordset(p_rich) AS r (n bigint, failure jsonb);
    END IF;
    IF v_ordered IS NOT NULL THEN
        PERFORM {schema}.outbox_lock_arrivals(p_queues, p_keys);
    END IF;
    IF v_limited IS NOT NULL THEN  -- one after the other: each counts what those before it have put
        PERFORM pg_advisory_xact_lock(hashtextextended(l.name, 17)) FROM unnest(v_limited) AS l (name);
        PERFORM {schema}.outbox_refuse_overflow(p_ids, p_queues, p_kinds, p_idempotency_keys, v_dead);
    END IF;
    v_token := nextval('{schema}.outbox_token');
    v_seqs := ARRAY(SELECT nextval('{schema}.outbox_seq') FROM generate_series(1, cardinality(p_ids)));
    WITH kept AS (
        INSERT INTO {schema}.outbox (
            seq, token, act, due_at, occurred_at, cycle_at, updated_at, generation, held, priority, lane, odd, id, queue,
            event_type, key, idempotency_key, source, target, workspace_id, policy, content_type, payload, extras, why)
        SELECT d.seq, v_token, p_call, coalesce({schema}.outbox_at(d.due), v_now + coalesce(d.delay, 0) * interval '1 microsecond'),
               v_now, v_now, v_now, d.generation, (d.lane > 0)::integer, coalesce(d.priority, 1), d.lane,
               coalesce(d.odd, false), d.id, d.queue,
               d.kind, d.key, d.idempotency_key, d.origin, d.handler, d.tenant, d.policy,
               coalesce(d.content_type, 'application/json'), d.payload,
               d.extras, 'enqueued'
          FROM (SELECT u.*, CASE WHEN v_ordered IS NOT NULL AND u.key IS NOT NULL AND u.queue = ANY (v_ordered)
                                      AND (v_dead IS NULL OR u.n <> ALL (v_dead)) THEN 3 ELSE 0 END AS lane
                  FROM unnest(v_seqs, p_ids, p_queues, p_kinds, p_payloads, p_content_types, p_keys, p_idempotency_keys,
                              p_priorities, p_delays, p_dues, p_policies, p_generations, p_origins, p_handlers,
                              p_tenants, p_extras, p_odds)
                       WITH ORDINALITY AS u (seq, id, queue, kind, payload, content_type, key, idempotency_key, priority,
                                             delay, due, policy, generation, origin, handler, tenant, extras, odd, n)
                 ORDER BY u.n) AS d
        ON CONFLICT DO NOTHING RETURNING queue, event_type),
    counted AS (
        INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
        SELECT k.queue, k.event_type, s.status, k.n
          FROM (SELECT queue, event_type, count(*) AS n FROM kept GROUP BY 1, 2) AS k
         CROSS JOIN (VALUES ('enqueued'), ('pending')) AS s (status))
    SELECT count(*) INTO v_kept FROM kept;
    IF p_rich IS NOT NULL AND v_kept > 0 THEN  -- after the letters: a duplicate is one whatever it would wait for
        SELECT jsonb_object_agg(p_ids[d.n], jsonb_build_array(d.n, d.kept)) INTO v_meant FROM {schema}.outbox_duplicates(
            p_call, p_again, p_ids, p_queues, p_kinds, p_idempotency_keys, v_seqs) AS d;
        PERFORM {schema}.outbox_wait(p_rich, v_seqs, v_token, coalesce(v_meant, '{}'), false);
        PERFORM {schema}.outbox_enrich(p_rich, v_seqs, v_now);
    END IF;
    IF v_ordered IS NOT NULL THEN
        FOREACH v_name IN ARRAY v_ordered LOOP
            PERFORM {schema}.outbox_place(v_name, p_keys);
        END LOOP;
    END IF;
    IF v_kept < cardinality(p_ids) THEN
        RETURN QUERY SELECT d.n, d.kept FROM {schema}.outbox_duplicates(
            p_call, p_again, p_ids, p_queues, p_kinds, p_idempotency_keys, v_seqs) AS d;
    END IF;
END $$;

CREATE FUNCTION {schema}.outbox_refuse_overflow(
    p_ids uuid[], p_queues text[], p_kinds text[], p_idempotency_keys text[], p_dead bigint[]
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_full record;
BEGIN
    SELECT q.name, q.max_size INTO v_full
      FROM (SELECT d.queue, count(DISTINCT coalesce(d.kind || E'\x1f' || d.idempotency_key, d.id::text)) AS n
              FROM unnest(p_ids, p_queues, p_kinds, p_idempotency_keys)
                   WITH ORDINALITY AS d (id, queue, kind, idempotency_key, n)
             WHERE (p_dead IS NULL OR d.n <> ALL (p_dead))
               AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.id = d.id)
               AND NOT EXISTS (SELECT 1 FROM {schema}.outbox AS o
                                WHERE o.queue = d.queue AND o.event_type = d.kind
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

-- Let new letters wait for others. p_seqs holds the place of every draft, p_token is theirs; p_meant says, by id, which
-- draft of the call is a duplicate, and of what: who waits for one waits for what is kept. What is p_lasting is a transaction of the user's own.
CREATE FUNCTION {schema}.outbox_wait(p_rich jsonb, p_seqs bigint[], p_token bigint, p_meant jsonb, p_lasting boolean)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_seqs bigint[];  -- who waits, and for whom: one of each for every pair
    v_ids uuid[];
    v_unknown text;
    v_seq bigint;
    v_held bigint;
BEGIN
    SELECT array_agg(p_seqs[r.n] ORDER BY r.n, a.place), array_agg(coalesce(
               CASE WHEN (p_meant -> a.id ->> 0)::bigint < r.n THEN p_meant -> a.id ->> 1 END, a.id)::uuid ORDER BY r.n, a.place)
      INTO v_seqs, v_ids
      FROM jsonb_to_recordset(p_rich) AS r (n bigint, after text[])
     CROSS JOIN LATERAL unnest(r.after) WITH ORDINALITY AS a (id, place)
     WHERE EXISTS (SELECT 1 FROM {schema}.outbox AS o WHERE o.seq = p_seqs[r.n]);
    IF v_seqs IS NULL THEN
        RETURN;
    END IF;
    -- In a short transaction nobody can deliver one of them between our look and our commit. In one of the user's own
    -- they can only not be removed: no worker waits for it, and one that is missing later was purged, and not delivered.
    IF p_lasting THEN
        PERFORM 1 FROM {schema}.outbox AS o WHERE o.id = ANY (v_ids) ORDER BY o.seq FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM {schema}.outbox AS o WHERE o.id = ANY (v_ids) ORDER BY o.seq FOR SHARE;
    END IF;
    -- LIMIT keeps the planner from going through the table for each of them, as it would after most letters were removed.
    SELECT u.id INTO v_unknown  -- those that come later in the same call are unknown, too
      FROM unnest(v_ids, v_seqs) WITH ORDINALITY AS u (id, seq, place)
      LEFT JOIN LATERAL (SELECT n.seq, n.token FROM {schema}.outbox AS n WHERE n.id = u.id LIMIT 1) AS o ON true
     WHERE o.seq IS NULL OR (o.token = p_token AND o.seq >= u.seq) ORDER BY u.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'no letter has the id %', v_unknown USING ERRCODE = 'RD404', DETAIL = v_unknown;
    END IF;
    IF p_meant <> '{}' THEN  -- and says so: `after` stands last in the extras, and all ids are of one length
        UPDATE {schema}.outbox AS o
           SET extras = overlay(o.extras PLACING k.ids FROM octet_length(o.extras) - octet_length(k.ids) + 1)
          FROM (SELECT u.seq, convert_to('["' || string_agg(u.id::text, '","' ORDER BY u.place) || '"]}', 'UTF8') AS ids
                  FROM unnest(v_seqs, v_ids) WITH ORDINALITY AS u (seq, id, place) GROUP BY u.seq) AS k
         WHERE o.seq = k.seq AND convert_to('"after":', 'UTF8') = substring(
               o.extras FROM octet_length(o.extras) - octet_length(k.ids) - 7 FOR 8);
    END IF;
    FOR v_seq, v_held IN
        WITH waits AS (
            INSERT INTO {schema}.outbox_waits (on_seq, seq)
            SELECT DISTINCT o.seq, u.seq FROM unnest(v_ids, v_seqs) AS u (id, seq)
             CROSS JOIN LATERAL (SELECT n.seq, n.status FROM {schema}.outbox AS n WHERE n.id = u.id LIMIT 1) AS o
             WHERE o.status <> 'delivered' RETURNING seq),
        unsure AS (INSERT INTO {schema}.outbox_unsure SELECT DISTINCT seq FROM waits WHERE p_lasting)
        SELECT seq, count(*) FROM waits GROUP BY seq
    LOOP
        UPDATE {schema}.outbox SET held = held + v_held WHERE seq = v_seq;
    END LOOP;
END $$;

-- The few drafts that are dead letters of somebody else's.
CREATE FUNCTION {schema}.outbox_enrich(p_rich jsonb, p_seqs bigint[], p_now timestamptz)
RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM {schema}.outbox_fail(
        (SELECT jsonb_agg(r.failure || jsonb_build_object('ref', o.seq, 'token', o.token))
           FROM jsonb_to_recordset(p_rich) AS r (n bigint, failure jsonb)
           JOIN {schema}.outbox AS o ON o.seq = p_seqs[r.n]
          WHERE r.failure IS NOT NULL), 0, p_now, 'pending');
    -- How often they were tried, and when they failed, they know themselves.
    UPDATE {schema}.outbox AS o
       SET attempts = coalesce(r.attempts, 0),
           failed_at = coalesce(r.failed, o.failed_at),
           first_failed_at = coalesce(r.first_failed, r.failed, o.first_failed_at)
      FROM (SELECT p_seqs[d.n] AS seq, d.attempts,
                   timestamptz 'epoch' + d.failed_us * interval '1 microsecond' AS failed,
                   timestamptz 'epoch' + d.first_failed_us * interval '1 microsecond' AS first_failed
              FROM jsonb_to_recordset(p_rich)
                AS d (n bigint, failure jsonb, attempts integer, failed_us bigint, first_failed_us bigint)
             WHERE d.failure IS NOT NULL AND d.failure <> 'null'::jsonb) AS r
     WHERE o.seq = r.seq AND o.status = 'failed';
END $$;

-- The drafts that were not kept at their place in p_seqs, and what is kept instead. Retention may have removed that
-- between the conflict and this look: then nothing is kept, and the caller asks again (serialization failure).
CREATE FUNCTION {schema}.outbox_duplicates(
    p_call bigint, p_again boolean, p_ids uuid[], p_queues text[], p_kinds text[], p_idempotency_keys text[],
    p_seqs bigint[]
) RETURNS TABLE (n bigint, kept text) LANGUAGE plpgsql
AS $$
BEGIN
    FOR n, kept IN
        -- A later draft of the call may be kept under the id of one whose key was taken.
        SELECT d.n, coalesce(CASE WHEN same.seq < d.seq THEN same.id END, alike.id, same.id)::text
          FROM (SELECT u.*, row_number() OVER (PARTITION BY u.id ORDER BY u.n) AS nth
                  FROM unnest(p_seqs, p_ids, p_queues, p_kinds, p_idempotency_keys)
                       WITH ORDINALITY AS u (seq, id, queue, kind, idempotency_key, n)) AS d
          LEFT JOIN {schema}.outbox AS mine ON mine.seq = d.seq
          LEFT JOIN {schema}.outbox AS same ON same.id = d.id
          LEFT JOIN {schema}.outbox AS alike ON alike.queue = d.queue AND alike.event_type = d.kind
                                            AND alike.idempotency_key = d.idempotency_key
         WHERE mine.seq IS NULL AND NOT (p_again AND d.nth = 1 AND same.act IS NOT DISTINCT FROM p_call)
    LOOP
        IF kept IS NULL THEN
            RAISE EXCEPTION 'the letter kept under the same key was removed meanwhile' USING ERRCODE = '40001';
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

-- ---------------------------------------------------------------------- settling

-- The attempt log that a line is added to: its newest 49, without tracebacks if the line has one, because only the
-- newest of a cycle is kept. What somebody else wrote there, and is no log, is none.
CREATE FUNCTION {schema}.outbox_log(p_tries jsonb, p_line jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN p_tries IS NULL OR jsonb_typeof(p_tries) <> 'array' THEN '[]'
                WHEN NOT p_line ? 'traceback' AND jsonb_array_length(p_tries) < 50 THEN p_tries
                ELSE (SELECT coalesce(jsonb_agg(CASE WHEN p_line ? 'traceback' AND jsonb_typeof(e.one) = 'object'
                                                     THEN e.one - 'traceback' ELSE e.one END ORDER BY e.n), '[]')
                        FROM jsonb_array_elements(p_tries) WITH ORDINALITY AS e (one, n)
                       WHERE e.n > jsonb_array_length(p_tries) - 49) END
$$;

-- Carry out moves to failed or back to pending; return the places of those that were held.
CREATE FUNCTION {schema}.outbox_fail(p_moves jsonb, p_call bigint, p_now timestamptz, p_from text)
RETURNS SETOF bigint LANGUAGE plpgsql
AS $$
DECLARE
    v_token bigint;
    v_seqs bigint[];
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
               due_at = CASE WHEN m."to" = 'pending' THEN p_now + m.delay * interval '1 microsecond' ELSE o.due_at END,
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
         WHERE o.seq = m.ref AND o.token = m.token AND o.status || '' = p_from
        RETURNING o.seq, o.queue, o.event_type, m.*),
    counted AS (
        INSERT INTO {schema}.outbox_deltas
        SELECT queue, event_type, p_from, '', '', '', '', -count(*) FROM moved GROUP BY 1, 2
        UNION ALL
        SELECT queue, event_type, 'pending', '', '', '', '', count(*) FROM moved WHERE "to" = 'pending' GROUP BY 1, 2
        UNION ALL
        SELECT queue, event_type, 'failed', category, policy, error_type, fingerprint, count(*)
          FROM moved WHERE "to" = 'failed' GROUP BY 1, 2, 4, 5, 6, 7),
    grouped AS (
        INSERT INTO {schema}.outbox_groups
        SELECT DISTINCT ON (fingerprint) fingerprint, error_type, title, p_now, p_now
          FROM moved WHERE "to" = 'failed' ORDER BY fingerprint
        ON CONFLICT (fingerprint) DO UPDATE SET last_seen_at = excluded.last_seen_at)
    SELECT array_agg(seq) INTO v_seqs FROM moved;
    PERFORM {schema}.outbox_advance(ARRAY(
        SELECT o.seq FROM {schema}.outbox AS o WHERE o.seq = ANY (v_seqs) AND o.status = 'failed' AND o.lane > 0));
    RETURN QUERY SELECT unnest(v_seqs);
END $$;

-- Deliver; return the places of those that were held.
CREATE FUNCTION {schema}.outbox_deliver(p_refs bigint[], p_tokens bigint[], p_call bigint, p_now timestamptz)
RETURNS bigint[] LANGUAGE plpgsql
AS $$
DECLARE
    v_token bigint := nextval('{schema}.outbox_token');
    v_seqs bigint[];
    v_lanes boolean;
BEGIN
    WITH moved AS (
        UPDATE {schema}.outbox AS o
           SET status = 'delivered', token = v_token, act = p_call, lease_until = NULL, worker = NULL,
               updated_at = p_now, why = 'succeeded'
          FROM unnest(p_refs, p_tokens) AS c (seq, token)
         WHERE o.seq = c.seq AND o.token = c.token AND o.status || '' = 'in_flight'  -- never by the index of leases
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
