-- Events with several handlers.

-- Give each due event without a target to its subscribers: a letter for each, and the event is delivered, in one
-- transaction. An event whose last subscriber leaves meanwhile stays. One caller at a time, so that letters of a key
-- follow the order of their events. Returns a row per kind; one row of zeros when there was nothing to do, and no row when
-- there are no subscriptions.
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
    -- Wait for a call that is under way: a caller that gets "nothing to do" concludes that every event was broadcast.
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}.outbox_broadcast', 3));
    PERFORM {schema}.outbox_lock_room();
    FOR v_lines IN SELECT l.queue, l.kind, l.ordered FROM {schema}.outbox_events_waiting() AS l LOOP
        IF v_lines.ordered THEN
            PERFORM {schema}.outbox_place_all(ARRAY[v_lines.queue]);
        END IF;
        v_seqs := v_seqs || {schema}.outbox_due_events(v_lines.queue, v_lines.kind, p_limit, v_now);
    END LOOP;
    IF cardinality(v_seqs) > 0 THEN
        PERFORM {schema}.outbox_lock_lanes(v_seqs);
        v_seqs := {schema}.outbox_with_room({schema}.outbox_unhindered(ARRAY(
            SELECT o.seq FROM {schema}.outbox AS o
             WHERE o.seq = ANY (v_seqs) AND o.status = 'pending' AND o.held = 0 AND o.target IS NULL
               FOR NO KEY UPDATE SKIP LOCKED)));
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
               e.trace_context, e.policy, e.content_type, e.payload, e.extras, '{why_enqueued}'
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
               why = '{why_broadcast}'
         WHERE o.seq = ANY (v_seqs)
           AND o.event_type IN (SELECT s.event_type FROM {schema}.subscription AS s)  -- as the children see them
        RETURNING o.queue, o.event_type, coalesce(o.category, '') AS category, coalesce(o.applied_policy, '') AS policy),
    told AS (
        SELECT s.queue, s.event_type AS kind, count(*) AS events, 0::bigint AS letters FROM spread AS s GROUP BY 1, 2
        UNION ALL
        SELECT c.queue, c.event_type, 0, count(*) FROM children AS c GROUP BY 1, 2),
    counted AS (
        INSERT INTO {schema}.outbox_deltas (queue, kind, status, category, policy, n)
        SELECT t.queue, t.kind, s.status, '', '', s.n
          FROM told AS t CROSS JOIN LATERAL (
               VALUES ('pending', t.letters), ('delivered', t.events), ('enqueued', t.letters)) AS s (status, n)
         WHERE s.n <> 0
        UNION ALL
        SELECT s.queue, s.event_type, 'pending', s.category, s.policy, -count(*) FROM spread AS s GROUP BY 1, 2, 4, 5)
    SELECT * FROM told;
    IF NOT FOUND THEN
        RETURN QUERY SELECT '', '', 0::bigint, 0::bigint;
    END IF;
    v_seqs := ARRAY(SELECT o.seq FROM {schema}.outbox AS o WHERE o.seq = ANY (v_seqs) AND o.status = 'delivered');
    PERFORM {schema}.outbox_let_go(v_seqs);
    PERFORM {schema}.outbox_advance(v_seqs);
END $$;

-- The queues and kinds in which events with subscribers wait; no paused queue, and none while a subscriber's is full.
CREATE OR REPLACE FUNCTION {schema}.outbox_events_waiting() RETURNS TABLE (queue text, kind text, ordered boolean)
LANGUAGE sql STABLE
AS $$
    SELECT l.queue, l.kind, coalesce(q.ordered, false)
      FROM (SELECT t.queue, t.kind
              FROM (SELECT queue, kind, n FROM {schema}.outbox_tallies WHERE status = 'pending'
                    UNION ALL SELECT queue, kind, n FROM {schema}.outbox_deltas WHERE status = 'pending') AS t
             WHERE t.kind IN (SELECT event_type FROM {schema}.subscription) GROUP BY 1, 2 HAVING sum(t.n) > 0) AS l
      LEFT JOIN {schema}.outbox_queues AS q ON q.name = l.queue
     WHERE NOT coalesce(q.paused, false) AND NOT EXISTS (
           SELECT 1 FROM {schema}.subscription AS s JOIN {schema}.outbox_queues AS f ON f.name = s.queue
            WHERE s.event_type = l.kind AND f.max_size IS NOT NULL
              AND {schema}.outbox_counted(f.name, '{pending,in_flight}') >= f.max_size)
$$;

-- The seqs of events that are due, up to p_limit of each priority.
CREATE OR REPLACE FUNCTION {schema}.outbox_due_events(p_queue text, p_kind text, p_limit integer, p_now timestamptz)
RETURNS bigint[] LANGUAGE sql STABLE
AS $$
    SELECT ARRAY(
        SELECT due.seq FROM (VALUES (0::smallint), (1::smallint), (2::smallint)) AS p (priority)
         CROSS JOIN LATERAL (
               SELECT o.seq FROM {schema}.outbox AS o
                WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = p_kind
                  AND o.priority = p.priority AND o.due_at <= p_now AND o.target IS NULL
                ORDER BY o.due_at, o.seq LIMIT p_limit) AS due)
$$;

-- These events, without those whose key an open transaction is enqueueing in a subscriber's ordered queue right now: no
-- worker waits for a user's transaction, and they come next time.
CREATE OR REPLACE FUNCTION {schema}.outbox_unhindered(p_seqs bigint[]) RETURNS bigint[] LANGUAGE sql
AS $$
    WITH wanted AS MATERIALIZED (
        SELECT o.seq, o.key, s.queue FROM {schema}.outbox AS o
          JOIN {schema}.subscription AS s ON s.event_type = o.event_type
          JOIN {schema}.outbox_queues AS q ON q.name = s.queue AND q.ordered
         WHERE o.seq = ANY (p_seqs) AND o.key IS NOT NULL),
    names AS MATERIALIZED (SELECT DISTINCT key, queue FROM wanted),
    busy AS MATERIALIZED (
        SELECT key, queue FROM names
         WHERE NOT pg_try_advisory_xact_lock(hashtextextended(key, hashtextextended(queue, 11))))
    SELECT ARRAY(SELECT seq FROM unnest(p_seqs) AS s (seq)
                  WHERE seq NOT IN (SELECT w.seq FROM wanted AS w JOIN busy AS b ON b.key = w.key AND b.queue = w.queue))
$$;

-- Count and fill subscribers' queues that have a max_size one call after the other, as outbox_put does.
CREATE OR REPLACE FUNCTION {schema}.outbox_lock_room() RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(l.name, 17)) FROM (
        SELECT q.name FROM {schema}.outbox_queues AS q
         WHERE q.max_size IS NOT NULL AND q.name IN (SELECT queue FROM {schema}.subscription)
         ORDER BY q.name OFFSET 0) AS l;
END $$;

-- These events, without those for whose letters a subscriber's queue has no room; they come when it has. An event with
-- more subscribers in one queue than the queue's max_size comes when the queue is empty: it would never come otherwise.
CREATE OR REPLACE FUNCTION {schema}.outbox_with_room(p_seqs bigint[]) RETURNS bigint[] LANGUAGE sql
AS $$
    WITH rooms AS MATERIALIZED (
        SELECT q.name, q.max_size, q.max_size - {schema}.outbox_counted(q.name, '{pending,in_flight}') AS room
          FROM {schema}.outbox_queues AS q
         WHERE q.max_size IS NOT NULL AND q.name IN (SELECT queue FROM {schema}.subscription)),
    letters AS MATERIALIZED (
        SELECT o.seq, r.room,
               row_number() OVER (PARTITION BY s.queue ORDER BY o.due_at, o.seq, s.handler_name) AS nth,
               r.room = r.max_size AND dense_rank() OVER (PARTITION BY s.queue ORDER BY o.due_at, o.seq) = 1 AS first
          FROM {schema}.outbox AS o
          JOIN {schema}.subscription AS s ON s.event_type = o.event_type
          JOIN rooms AS r ON r.name = s.queue
         WHERE o.seq = ANY (p_seqs))
    SELECT ARRAY(SELECT seq FROM unnest(p_seqs) AS e (seq)
                  WHERE seq NOT IN (SELECT l.seq FROM letters AS l WHERE l.nth > l.room AND NOT l.first))
$$;
