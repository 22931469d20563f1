-- Functions written anew: claims line by line, letters in the user's own transaction, one or many.
-- CREATE OR REPLACE keeps the signatures, so that workers of the schema before go on.

-- Claim up to p_limit due letters of one queue. p_sinces holds, for each kind, where to begin to look in its
-- high, medium and low line (NULL: at the start); it spares a claim the remains of letters claimed before. Letters
-- that became due in the last two seconds are always looked at. Who claims puts the letters in order.
CREATE OR REPLACE FUNCTION {schema}.outbox_take(
    p_queue text, p_kinds text[], p_sinces bigint[], p_generation bigint, p_limit integer, p_turns integer[],
    p_worker text, p_call bigint, p_token bigint, p_now timestamptz, p_lease timestamptz
) RETURNS SETOF {schema}.outbox_claimed LANGUAGE plpgsql
AS $$
DECLARE
    v_kinds text[];
    v_priorities smallint[];
    v_sinces timestamptz[];
    v_counts bigint[];
    v_now bigint := {schema}.outbox_us(p_now);
    v_found bigint;
BEGIN
    SELECT array_agg(l.kind ORDER BY l.n), array_agg(l.priority ORDER BY l.n), array_agg(l.since ORDER BY l.n)
      INTO v_kinds, v_priorities, v_sinces
      FROM (SELECT u.n, p_kinds[(u.n - 1) / 3 + 1] AS kind, ((u.n - 1) % 3)::smallint AS priority,
                   CASE WHEN u.since IS NULL THEN '-infinity'
                        ELSE least({schema}.outbox_at(u.since), p_now - interval '2 seconds') END AS since
              FROM unnest(p_sinces) WITH ORDINALITY AS u (since, n)) AS l
     CROSS JOIN LATERAL (  -- LIMIT keeps the planner from reading a whole line to see whether it is empty
           SELECT 1 FROM {schema}.outbox AS o
            WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = l.kind
              AND o.priority = l.priority AND o.due_at >= l.since AND o.due_at <= p_now
            ORDER BY o.due_at, o.seq LIMIT 1) AS one;
    IF v_kinds IS NULL THEN
        RETURN;
    END IF;
    v_counts := CASE WHEN cardinality(v_kinds) = 1 THEN ARRAY[p_limit] ELSE {schema}.outbox_shares(
        p_queue, v_kinds, v_priorities, v_sinces, p_generation, p_limit, p_turns, p_now, p_token) END;
    FOR n IN 1 .. cardinality(v_kinds) LOOP
        RETURN QUERY
        UPDATE {schema}.outbox AS o
           SET status = 'in_flight', attempts = o.attempts + 1, token = p_token, act = -p_call, lease_until = p_lease,
               worker = p_worker, updated_at = p_now
         WHERE o.ctid = ANY (ARRAY(  -- where the rows that are locked stand: nobody else can move them
               SELECT o.ctid FROM {schema}.outbox AS o
                WHERE o.status = 'pending' AND o.held = 0 AND o.queue = p_queue AND o.event_type = v_kinds[n]
                  AND o.priority = v_priorities[n] AND o.due_at >= v_sinces[n] AND o.due_at <= p_now
                  AND (o.generation IS NULL OR p_generation IS NULL OR o.generation = p_generation)
                  AND o.token < p_token
                ORDER BY o.due_at, o.seq LIMIT v_counts[n] FOR NO KEY UPDATE SKIP LOCKED))
        RETURNING o.seq, o.id::text, o.queue, o.event_type, o.payload, o.content_type, o.key, o.idempotency_key,
               o.priority, CASE WHEN o.due_at <> o.occurred_at THEN {schema}.outbox_us(o.due_at) END,
               o.attempts, o.losses, o.policy, o.generation, o.source, o.target, o.workspace_id, o.cycles,
               CASE WHEN o.cycle_at <> o.occurred_at THEN {schema}.outbox_us(o.cycle_at) END,
               {schema}.outbox_us(o.occurred_at), v_now, o.payload_version, o.token,
               o.attempts > 1 OR o.cycles > 0 OR o.losses > 0 OR o.extras IS NOT NULL OR o.odd
                   OR o.why IS DISTINCT FROM 'enqueued',
               o.category, o.error_type, o.last_error, o.fingerprint, o.why, {schema}.outbox_us(o.first_failed_at),
               {schema}.outbox_us(o.failed_at), o.applied_policy, o.release, o.plan, o.held, o.odd, o.extras,
               o.tries::text, CASE WHEN o.cycles > 0 THEN o.failure_history::text END;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF v_found > 0 THEN
            INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
            VALUES (p_queue, v_kinds[n], 'pending', -v_found), (p_queue, v_kinds[n], 'in_flight', v_found);
        END IF;
    END LOOP;
END $$;

-- Keep one letter in the caller's transaction; return the id that is kept already, or NULL if this one is now.
-- Takes no lock that a worker waits for: the letter of an ordered queue is placed by whoever claims next.
CREATE FUNCTION {schema}.outbox_accept(
    p_id text, p_queue text, p_kind text, p_payload bytea, p_content_type text, p_key text, p_idempotency_key text,
    p_priority integer, p_delay bigint, p_due bigint, p_policy text, p_generation bigint, p_origin text,
    p_handler text, p_tenant text, p_extras bytea, p_odd boolean, p_rich text, p_names text, p_notify boolean
) RETURNS text LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_id uuid := p_id;
    v_lane smallint := 0;
    v_held integer := 0;
    v_ordered boolean;
    v_max_size bigint;
    v_kept text;
    v_seq bigint;
    v_token bigint;
BEGIN
    SELECT ordered, max_size INTO v_ordered, v_max_size FROM {schema}.outbox_queues WHERE name = p_queue;
    IF v_max_size IS NOT NULL THEN
        PERFORM {schema}.outbox_refuse_overflow(
            ARRAY[v_id], ARRAY[p_queue], ARRAY[p_kind], ARRAY[p_idempotency_key], NULL);
    END IF;
    IF v_ordered AND p_key IS NOT NULL THEN
        PERFORM {schema}.outbox_lock_arrivals(ARRAY[p_queue], ARRAY[p_key]);
        v_lane := 3;
        v_held := 1;
    END IF;
    LOOP  -- again if what was in its place has been removed meanwhile
        INSERT INTO {schema}.outbox (
            token, due_at, occurred_at, cycle_at, updated_at, generation, held, priority, lane, odd, id, queue, event_type,
            key, idempotency_key, source, target, workspace_id, policy, content_type, payload, extras, why)
        VALUES (
            nextval('{schema}.outbox_token'),
            CASE WHEN p_due IS NOT NULL THEN {schema}.outbox_at(p_due)
                 WHEN p_delay IS NOT NULL THEN v_now + p_delay * interval '1 microsecond' ELSE v_now END,
            v_now, v_now, v_now, p_generation, v_held, p_priority, v_lane, p_odd, v_id, p_queue, p_kind, p_key,
            p_idempotency_key, p_origin, p_handler, p_tenant, p_policy, p_content_type, p_payload, p_extras, 'enqueued')
        ON CONFLICT DO NOTHING RETURNING seq, token INTO v_seq, v_token;
        EXIT WHEN FOUND;
        v_kept := coalesce(
            (SELECT id::text FROM {schema}.outbox WHERE id = v_id),
            (SELECT id::text FROM {schema}.outbox WHERE queue = p_queue AND event_type = p_kind
                AND idempotency_key = p_idempotency_key));
        IF v_kept IS NOT NULL THEN
            RETURN v_kept;
        END IF;
    END LOOP;
    INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
    VALUES (p_queue, p_kind, 'enqueued', 1), (p_queue, p_kind, 'pending', 1);
    IF p_rich IS NOT NULL THEN
        PERFORM {schema}.outbox_wait(p_rich::jsonb, ARRAY[v_seq], v_token, '{}', true);
        PERFORM {schema}.outbox_enrich(p_rich::jsonb, ARRAY[v_seq], v_now);
    END IF;
    IF p_names IS NOT NULL THEN
        INSERT INTO {schema}.outbox_names SELECT * FROM jsonb_each_text(p_names::jsonb) ON CONFLICT DO NOTHING;
    END IF;
    IF p_notify THEN
        PERFORM pg_notify('outbox_default', '');
    END IF;
    RETURN NULL;
END $$;

-- Keep many letters in the caller's transaction, in their order: for each what outbox_accept returns.
CREATE FUNCTION {schema}.outbox_accept_many(
    p_ids text[], p_queues text[], p_kinds text[], p_payloads bytea[], p_content_types text[], p_keys text[],
    p_idempotency_keys text[], p_priorities integer[], p_delays bigint[], p_dues bigint[], p_policies text[],
    p_generations bigint[], p_origins text[], p_handlers text[], p_tenants text[], p_extras bytea[],
    p_odds boolean[], p_rich text[], p_names text[], p_notify boolean
) RETURNS SETOF text LANGUAGE plpgsql
AS $$
DECLARE d record;
BEGIN
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
