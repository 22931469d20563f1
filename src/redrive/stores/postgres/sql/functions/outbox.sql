-- Letters in a transaction of the user's own.

-- Keep one letter in the caller's transaction; return NULL, or the id that is kept instead if it is a duplicate. Takes no
-- lock that a worker waits for: the next claim places the letter of an ordered queue. p_meant: see outbox_wait.
CREATE OR REPLACE FUNCTION {schema}.outbox_accept(
    p_id text, p_queue text, p_kind text, p_payload bytea, p_content_type text, p_key text, p_idempotency_key text,
    p_priority integer, p_delay bigint, p_due bigint, p_policy text, p_generation bigint, p_origin text,
    p_handler text, p_tenant text, p_extras bytea, p_odd boolean, p_wide boolean, p_rich text, p_names text,
    p_notify boolean, p_meant jsonb DEFAULT '{}'
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
            ARRAY[v_id], ARRAY[p_queue], ARRAY[p_kind], ARRAY[p_idempotency_key], ARRAY[p_wide], NULL);
    END IF;
    IF v_ordered AND p_key IS NOT NULL THEN
        PERFORM {schema}.outbox_lock_arrivals(ARRAY[p_queue], ARRAY[p_key]);
        v_lane := 3;
        v_held := 1;
    END IF;
    LOOP  -- again if the letter that was in its place has been removed meanwhile
        INSERT INTO {schema}.outbox (
            token, due_at, occurred_at, cycle_at, updated_at, generation, held, priority, lane, odd, queue_wide, id, queue,
            event_type, key, idempotency_key, source, target, workspace_id, policy, content_type, payload, extras, why)
        VALUES (
            nextval('{schema}.outbox_token'),
            CASE WHEN p_due IS NOT NULL THEN {schema}.outbox_at(p_due)
                 WHEN p_delay IS NOT NULL THEN v_now + p_delay * interval '1 microsecond' ELSE v_now END,
            v_now, v_now, v_now, p_generation, v_held, p_priority, v_lane, p_odd, p_wide, v_id, p_queue, p_kind, p_key,
            p_idempotency_key, p_origin, p_handler, p_tenant, p_policy, p_content_type, p_payload, p_extras, '{why_enqueued}')
        ON CONFLICT DO NOTHING RETURNING seq, token INTO v_seq, v_token;
        EXIT WHEN FOUND;
        v_kept := coalesce(
            (SELECT id::text FROM {schema}.outbox WHERE id = v_id),
            (SELECT id::text FROM {schema}.outbox WHERE queue = p_queue AND event_type = p_kind
                AND idempotency_key = p_idempotency_key),
            (SELECT id::text FROM {schema}.outbox WHERE p_wide AND queue_wide AND queue = p_queue
                AND idempotency_key = p_idempotency_key));
        IF v_kept IS NOT NULL THEN
            RETURN v_kept;
        END IF;
    END LOOP;
    INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
    VALUES (p_queue, p_kind, 'enqueued', 1), (p_queue, p_kind, 'pending', 1);
    IF p_rich IS NOT NULL THEN
        PERFORM {schema}.outbox_wait(p_rich::jsonb, ARRAY[v_seq], v_token, p_meant, true);
        PERFORM {schema}.outbox_enrich(p_rich::jsonb, ARRAY[v_seq], v_now);
    END IF;
    IF p_names IS NOT NULL THEN
        PERFORM {schema}.outbox_keep_names(p_names::jsonb);
    END IF;
    IF p_notify THEN
        PERFORM pg_notify('outbox_default', '');
    END IF;
    RETURN NULL;
END $$;

-- Keep long names with the letter that has them, in a transaction that may stay open. It holds their rows, so that they
-- stay until it ends, but only FOR KEY SHARE, so that two such transactions do not block each other.
CREATE OR REPLACE FUNCTION {schema}.outbox_keep_names(p_names jsonb) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    LOOP
        INSERT INTO {schema}.outbox_names (digest, name, kept_us)
        SELECT n.key, n.value, c.lease_us FROM jsonb_each_text(p_names) AS n, {schema}.outbox_clock AS c ORDER BY 1
        ON CONFLICT DO NOTHING;
        PERFORM 1 FROM {schema}.outbox_names WHERE digest IN (SELECT jsonb_object_keys(p_names)) FOR KEY SHARE;
        EXIT WHEN (SELECT count(*) FROM {schema}.outbox_names WHERE digest IN (SELECT jsonb_object_keys(p_names)))
                  = (SELECT count(*) FROM jsonb_object_keys(p_names));  -- again if one was removed meanwhile
    END LOOP;
END $$;

-- Keep many letters in the caller's transaction, in their order; for each return what outbox_accept returns. Their keys
-- are locked first and in one order, so that two callers with the same keys cannot deadlock. A letter that waits for a
-- draft of this call which is a duplicate waits for what is kept, as in outbox_put.
CREATE OR REPLACE FUNCTION {schema}.outbox_accept_many(
    p_ids text[], p_queues text[], p_kinds text[], p_payloads bytea[], p_content_types text[], p_keys text[],
    p_idempotency_keys text[], p_priorities integer[], p_delays bigint[], p_dues bigint[], p_policies text[],
    p_generations bigint[], p_origins text[], p_handlers text[], p_tenants text[], p_extras bytea[],
    p_odds boolean[], p_wide boolean[], p_rich text[], p_names text[], p_notify boolean
) RETURNS SETOF text LANGUAGE plpgsql
AS $$
DECLARE
    d record;
    v_kept text;
    v_meant jsonb := '{}';
BEGIN
    PERFORM {schema}.outbox_lock_arrivals(array_agg(u.queue), array_agg(u.key))
       FROM unnest(p_queues, p_keys) AS u (queue, key)
       JOIN {schema}.outbox_queues AS q ON q.name = u.queue AND q.ordered WHERE u.key IS NOT NULL;
    FOR d IN
        SELECT * FROM unnest(
            p_ids, p_queues, p_kinds, p_payloads, p_content_types, p_keys, p_idempotency_keys,
            p_priorities, p_delays, p_dues, p_policies, p_generations, p_origins, p_handlers, p_tenants,
            p_extras, p_odds, p_wide, p_rich, p_names
        ) AS u (
            id, queue, kind, payload, content_type, key, idempotency_key, priority, delay, due, policy,
            generation, origin, handler, tenant, extras, odd, wide, rich, names)
    LOOP
        v_kept := {schema}.outbox_accept(
            d.id, d.queue, d.kind, d.payload, d.content_type, d.key, d.idempotency_key, d.priority,
            d.delay, d.due, d.policy, d.generation, d.origin, d.handler, d.tenant, d.extras, d.odd, d.wide,
            d.rich, d.names, false, v_meant);
        IF v_kept IS NOT NULL THEN
            v_meant := v_meant || jsonb_build_object(d.id, jsonb_build_array(0, v_kept));  -- 0: before every draft to come
        END IF;
        RETURN NEXT v_kept;
    END LOOP;
    IF p_notify THEN
        PERFORM pg_notify('outbox_default', '');
    END IF;
END $$;
