-- Functions written anew: lanes that are lined up while a letter of theirs is claimed, claims that wait for nobody's
-- lane, events whose last subscriber leaves, keys in one order. CREATE OR REPLACE keeps the signatures, so that workers
-- of the schema before go on.

-- Put the lanes of these letters in order again, the oldest first; one that is under way stays first. The caller holds
-- the rows of these letters and their lanes, but a claim takes the first of a lane without the lane's lock.
CREATE OR REPLACE FUNCTION {schema}.outbox_line_up(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    -- They came back from rest, where they stood in no line: whatever held them by their key then is over.
    UPDATE {schema}.outbox AS o SET lane = r.lane, held = r.held
      FROM (SELECT n.seq, coalesce(q.ordered, false)::integer AS lane,
                   (SELECT count(*) FROM {schema}.outbox_waits AS w WHERE w.seq = n.seq) AS held
              FROM {schema}.outbox AS n LEFT JOIN {schema}.outbox_queues AS q ON q.name = n.queue
             WHERE n.seq = ANY (p_seqs) AND n.key IS NOT NULL) AS r
     WHERE o.seq = r.seq AND (o.lane <> r.lane OR o.held <> r.held);
    -- Whoever claims one of these right now did not see that it is to wait: wait for its end, and look then.
    PERFORM 1 FROM {schema}.outbox AS n
       JOIN (SELECT DISTINCT queue, key FROM {schema}.outbox
              WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l ON n.queue = l.queue AND n.key = l.key
      WHERE n.lane > 0 AND n.lane < 2 AND n.status IN ('pending', 'in_flight') ORDER BY n.seq FOR NO KEY UPDATE OF n;
    UPDATE {schema}.outbox AS o SET lane = w.wanted, held = o.held + w.wanted - o.lane
      FROM (SELECT n.seq, CASE WHEN row_number() OVER (
                       PARTITION BY n.queue, n.key ORDER BY n.status = 'pending', n.seq) = 1 THEN 1 ELSE 2 END AS wanted
              FROM (SELECT DISTINCT queue, key FROM {schema}.outbox
                     WHERE seq = ANY (p_seqs) AND lane > 0 AND key IS NOT NULL) AS l
              JOIN {schema}.outbox AS n ON n.queue = l.queue AND n.key = l.key AND n.lane > 0 AND n.lane < 3
               AND n.status IN ('pending', 'in_flight')) AS w
     WHERE o.seq = w.seq AND o.lane <> w.wanted;
END $$;

-- Place letters that arrived; the caller holds their lanes.
CREATE FUNCTION {schema}.outbox_place_rows(p_seqs bigint[]) RETURNS void LANGUAGE sql
AS $$
    UPDATE {schema}.outbox AS o
       SET lane = CASE WHEN p.first THEN 1 ELSE 2 END, held = o.held - p.first::integer
      FROM (SELECT a.seq, row_number() OVER (PARTITION BY a.queue, a.key ORDER BY a.seq) = 1 AND NOT EXISTS (
                       SELECT 1 FROM {schema}.outbox AS b
                        WHERE b.queue = a.queue AND b.key = a.key AND b.lane > 0 AND b.lane < 3
                          AND b.status IN ('pending', 'in_flight')) AS first
              FROM {schema}.outbox AS a WHERE a.seq = ANY (p_seqs) AND a.lane = 3) AS p
     WHERE o.seq = p.seq
$$;

-- Place what arrived in any of *p_queues*; waits for those who hold their lanes, and locks all of them in one order.
CREATE FUNCTION {schema}.outbox_place_all(p_queues text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_seqs bigint[];
BEGIN
    SELECT array_agg(seq) INTO v_seqs FROM {schema}.outbox WHERE lane = 3 AND queue = ANY (p_queues);
    IF v_seqs IS NOT NULL THEN
        PERFORM {schema}.outbox_lock_lanes(v_seqs);
        PERFORM {schema}.outbox_place_rows(v_seqs);
    END IF;
END $$;

-- Place what arrived in *p_queue*, of the given keys or (NULL) of all, where nobody else holds the lane right now. Who
-- puts or claims may hold letters and other lanes: two that waited for each other's would stand still until the server
-- ends one. What is left is placed by the next claim, or by who looks what is left to do.
CREATE FUNCTION {schema}.outbox_place_free(p_queue text, p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_seqs bigint[];
BEGIN
    SELECT array_agg(u.seq) INTO v_seqs
      FROM (SELECT k.seqs FROM (
                   SELECT key, array_agg(seq) AS seqs FROM {schema}.outbox
                    WHERE lane = 3 AND queue = p_queue AND (p_keys IS NULL OR key = ANY (p_keys))
                    GROUP BY key OFFSET 0) AS k
             WHERE pg_try_advisory_xact_lock(hashtextextended(k.key, hashtextextended(p_queue, 7))) OFFSET 0) AS free
     CROSS JOIN LATERAL unnest(free.seqs) AS u (seq);
    IF v_seqs IS NOT NULL THEN
        PERFORM {schema}.outbox_place_rows(v_seqs);
    END IF;
END $$;

-- Place what arrived in *p_queue*: of the given keys where that is possible at once, or (NULL) all of it.
CREATE OR REPLACE FUNCTION {schema}.outbox_place(p_queue text, p_keys text[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF p_keys IS NULL THEN
        PERFORM {schema}.outbox_place_all(ARRAY[p_queue]);
    ELSE
        PERFORM {schema}.outbox_place_free(p_queue, p_keys);
    END IF;
END $$;

-- How many letters the queue's shared settings let a claim have now; places what arrived in an ordered one.
CREATE OR REPLACE FUNCTION {schema}.outbox_allowed(p_queue text, p_limit integer, p_now timestamptz)
RETURNS integer LANGUAGE plpgsql
AS $$
DECLARE
    q {schema}.outbox_queues;
    v_limit bigint := p_limit;
BEGIN
    SELECT * INTO q FROM {schema}.outbox_queues WHERE name = p_queue;
    IF NOT FOUND THEN
        RETURN v_limit;
    END IF;
    IF q.rate IS NOT NULL OR q.max_in_flight IS NOT NULL THEN  -- those who claim take turns
        SELECT * INTO q FROM {schema}.outbox_queues WHERE name = p_queue FOR UPDATE;
    END IF;
    IF q.rate IS NOT NULL AND q.allowance_at > p_now THEN  -- the clock was set back: go on from where it stands now
        UPDATE {schema}.outbox_queues SET allowance_at = p_now WHERE name = p_queue RETURNING * INTO q;
    END IF;
    IF q.paused THEN
        RETURN 0;
    END IF;
    IF q.max_in_flight IS NOT NULL THEN
        v_limit := least(v_limit, q.max_in_flight - {schema}.outbox_counted(p_queue, '{in_flight}'));
    END IF;
    IF q.rate IS NOT NULL THEN
        v_limit := least(v_limit, floor({schema}.outbox_allowance(q, p_now))::bigint);
    END IF;
    IF q.ordered THEN
        PERFORM {schema}.outbox_place_free(p_queue, NULL);
    END IF;
    RETURN v_limit;
END $$;

-- Give each due event without a target to its subscribers: a letter for each, and the event is delivered, in one
-- transaction; one whose last subscriber leaves meanwhile stays. One caller at a time, so that letters of a key follow
-- the order of their events. Returns a row per kind; one of zeros when there was nothing to do, and none at all when
-- nobody subscribes to anything.
CREATE OR REPLACE FUNCTION {schema}.outbox_broadcast(p_limit integer, p_now bigint)
RETURNS TABLE (queue text, kind text, events bigint, letters bigint) LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_token bigint;
    v_seqs bigint[] := '{}';
    v_lines record;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.subscription) THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT 1 FROM {schema}.outbox_events_waiting()) THEN
        RETURN QUERY SELECT '', '', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Wait for whoever is at it: a caller that is told of nothing to do may believe that all was done.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}.outbox_broadcast', 3));
    FOR v_lines IN SELECT l.queue, l.kind, l.ordered FROM {schema}.outbox_events_waiting() AS l LOOP
        IF v_lines.ordered THEN
            PERFORM {schema}.outbox_place(v_lines.queue, NULL);
        END IF;
        v_seqs := v_seqs || {schema}.outbox_due_events(v_lines.queue, v_lines.kind, p_limit, v_now);
    END LOOP;
    IF cardinality(v_seqs) > 0 THEN
        PERFORM {schema}.outbox_lock_lanes(v_seqs);
        v_seqs := {schema}.outbox_unhindered(ARRAY(
            SELECT o.seq FROM {schema}.outbox AS o
             WHERE o.seq = ANY (v_seqs) AND o.status = 'pending' AND o.held = 0 AND o.target IS NULL
               FOR NO KEY UPDATE SKIP LOCKED));
    END IF;
    IF cardinality(v_seqs) = 0 THEN
        RETURN QUERY SELECT '', '', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    v_token := nextval('{schema}.outbox_token');
    RETURN QUERY
    WITH children AS (
        INSERT INTO {schema}.outbox (
            token, due_at, occurred_at, cycle_at, updated_at, event_version, generation, held, priority, lane, odd, id,
            queue, event_type, key, idempotency_key, source, target, workspace_id, channel, trace_context, policy,
            content_type, payload, extras, why)
        SELECT v_token, v_now, v_now, v_now, v_now, e.event_version, e.generation, (e.lane > 0)::integer, e.priority,
               e.lane, e.odd, gen_random_uuid(), e.to_queue, e.handler_name, e.key,
               coalesce(e.idempotency_key, e.id::text), 'event:' || e.id, e.handler_name, e.workspace_id, e.channel,
               e.trace_context, e.policy, e.content_type, e.payload, e.extras, 'enqueued'
          FROM (SELECT o.event_version, o.generation, o.priority, o.odd, o.id, o.key, o.idempotency_key,
                       o.workspace_id, o.channel, o.trace_context, o.policy, o.content_type, o.payload, o.extras,
                       s.queue AS to_queue, s.handler_name,
                       CASE WHEN q.ordered AND o.key IS NOT NULL THEN 3 ELSE 0 END AS lane
                  FROM {schema}.outbox AS o
                  JOIN {schema}.subscription AS s ON s.event_type = o.event_type
                  LEFT JOIN {schema}.outbox_queues AS q ON q.name = s.queue
                 WHERE o.seq = ANY (v_seqs) ORDER BY o.due_at, o.seq, s.handler_name) AS e
        ON CONFLICT DO NOTHING RETURNING queue, event_type),
    spread AS (
        UPDATE {schema}.outbox AS o
           SET status = 'delivered', token = v_token, act = 0, attempts = o.attempts + 1, updated_at = v_now,
               why = 'broadcast'
         WHERE o.seq = ANY (v_seqs)
           AND o.event_type IN (SELECT s.event_type FROM {schema}.subscription AS s)  -- as the children see them
        RETURNING o.queue, o.event_type),
    told AS (
        SELECT s.queue, s.event_type AS kind, count(*) AS events, 0::bigint AS letters FROM spread AS s GROUP BY 1, 2
        UNION ALL
        SELECT c.queue, c.event_type, 0, count(*) FROM children AS c GROUP BY 1, 2),
    counted AS (
        INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
        SELECT t.queue, t.kind, s.status, s.n
          FROM told AS t CROSS JOIN LATERAL (
               VALUES ('pending', t.letters - t.events), ('delivered', t.events), ('enqueued', t.letters)) AS s (status, n)
         WHERE s.n <> 0)
    SELECT * FROM told;
    IF NOT FOUND THEN
        RETURN QUERY SELECT '', '', 0::bigint, 0::bigint;
    END IF;
    v_seqs := ARRAY(SELECT o.seq FROM {schema}.outbox AS o WHERE o.seq = ANY (v_seqs) AND o.status = 'delivered');
    PERFORM {schema}.outbox_let_go(v_seqs);
    PERFORM {schema}.outbox_advance(v_seqs);
END $$;

-- Keep many letters in the caller's transaction, in their order: for each what outbox_accept returns. Their keys are
-- locked first and in one order, so that two callers who name the same keys cannot block each other.
CREATE OR REPLACE FUNCTION {schema}.outbox_accept_many(
    p_ids text[], p_queues text[], p_kinds text[], p_payloads bytea[], p_content_types text[], p_keys text[],
    p_idempotency_keys text[], p_priorities integer[], p_delays bigint[], p_dues bigint[], p_policies text[],
    p_generations bigint[], p_origins text[], p_handlers text[], p_tenants text[], p_extras bytea[],
    p_odds boolean[], p_rich text[], p_names text[], p_notify boolean
) RETURNS SETOF text LANGUAGE plpgsql
AS $$
DECLARE d record;
BEGIN
    PERFORM {schema}.outbox_lock_arrivals(array_agg(u.queue), array_agg(u.key))
       FROM unnest(p_queues, p_keys) AS u (queue, key)
       JOIN {schema}.outbox_queues AS q ON q.name = u.queue AND q.ordered WHERE u.key IS NOT NULL;
    FOR d IN
        SELECT * FROM unnest(
            p_ids, p_queues, p_kinds, p_payloads, p_content_types, p_keys, p_idempotency_keys,
            p_priorities, p_delays, p_dues, p_policies, p_generations, p_origins, p_handlers, p_tenants,
            p_extras, p_odds, p_rich, p_names
        ) AS u (
            id, queue, kind, payload, content_type, key, idempotency_key, priority, delay, due, policy,
            generation, origin, handler, tenant, extras, odd, rich, names)
    LOOP
        RETURN NEXT {schema}.outbox_accept(
            d.id, d.queue, d.kind, d.payload, d.content_type, d.key, d.idempotency_key, d.priority,
            d.delay, d.due, d.policy, d.generation, d.origin, d.handler, d.tenant, d.extras, d.odd,
            d.rich, d.names, false);
    END LOOP;
    IF p_notify THEN
        PERFORM pg_notify('outbox_default', '');
    END IF;
END $$;
