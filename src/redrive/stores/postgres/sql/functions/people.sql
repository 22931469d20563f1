-- For people who work in SQL, in any language: enqueue in your own transaction, look, replay.

-- The payload as JSON; NULL if it is no JSON, or holds what jsonb cannot (such as \u0000).
CREATE OR REPLACE FUNCTION {schema}.outbox_json(payload bytea) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT
AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;

-- The outbox with its payloads as JSON. The table itself keeps them as the bytes that came in.
CREATE OR REPLACE VIEW {schema}.outbox_events AS
SELECT id, event_type, event_version, occurred_at, source, target, channel, generation, workspace_id,
       {schema}.outbox_json(payload) AS payload, idempotency_key, trace_context, status, attempts, last_error,
       first_failed_at, failure_history, deleted_at, queue, key, priority, due_at, lease_until, worker, failed_at,
       category, error_type, fingerprint, why, updated_at
  FROM {schema}.outbox;

-- For producers that can insert and cannot call a function: an insert into the view enqueues a letter. A column that
-- the producer leaves out has the default of outbox_enqueue; RETURNING gives the letter that is kept.
CREATE OR REPLACE FUNCTION {schema}.outbox_write_event() RETURNS trigger LANGUAGE plpgsql
AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN  -- a change that is not counted would make the counts wrong
        RAISE EXCEPTION 'cannot % an event: its row is redrive''s', lower(TG_OP)
            USING ERRCODE = 'feature_not_supported', HINT = 'Use outbox_replay(), or the command redrive.';
    END IF;
    IF coalesce(NEW.status, 'pending') <> 'pending' OR coalesce(NEW.attempts, 0) <> 0 OR num_nonnulls(
           NEW.last_error, NEW.first_failed_at, NEW.failed_at, NEW.deleted_at, NEW.lease_until, NEW.worker,
           NEW.category, NEW.error_type, NEW.fingerprint) > 0 THEN
        RAISE EXCEPTION 'cannot insert event % with a past: an event begins as pending', NEW.event_type
            USING ERRCODE = 'check_violation', HINT = 'Leave status, attempts and everything about failures out.';
    END IF;
    NEW.id := {schema}.outbox_enqueue(
        p_event_type => NEW.event_type, p_payload => NEW.payload, p_queue => coalesce(NEW.queue, 'default'),
        p_id => NEW.id, p_idempotency_key => NEW.idempotency_key, p_key => NEW.key,
        p_priority => coalesce(NEW.priority, 1), p_source => NEW.source, p_target => NEW.target,
        p_delay => greatest(coalesce(NEW.due_at - clock_timestamp(), '0'), '0'), p_generation => NEW.generation,
        p_workspace_id => NEW.workspace_id, p_channel => coalesce(NEW.channel, 'outbox_default'),
        p_event_version => coalesce(NEW.event_version, 1), p_trace_context => NEW.trace_context,
        p_occurred_at => NEW.occurred_at);
    SELECT * INTO NEW FROM {schema}.outbox_events WHERE id = NEW.id;  -- for RETURNING
    RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER outbox_write_event INSTEAD OF INSERT OR UPDATE OR DELETE ON {schema}.outbox_events
    FOR EACH ROW EXECUTE FUNCTION {schema}.outbox_write_event();

-- Enqueue a letter in the caller's own transaction; return its id, or that of the letter already kept under its
-- idempotency key. p_notify wakes workers at the commit (it takes a lock that all commits with NOTIFY share).
CREATE OR REPLACE FUNCTION {schema}.outbox_enqueue(
    p_event_type text, p_payload jsonb, p_queue text DEFAULT 'default', p_id uuid DEFAULT NULL,
    p_idempotency_key text DEFAULT NULL, p_key text DEFAULT NULL, p_priority integer DEFAULT 1,
    p_delay interval DEFAULT '0', p_source text DEFAULT NULL, p_target text DEFAULT NULL,
    p_generation bigint DEFAULT NULL, p_workspace_id text DEFAULT NULL, p_channel text DEFAULT 'outbox_default',
    p_event_version integer DEFAULT 1, p_trace_context text DEFAULT NULL, p_body bytea DEFAULT NULL,
    p_content_type text DEFAULT 'application/json', p_notify boolean DEFAULT true,
    p_occurred_at timestamptz DEFAULT NULL
) RETURNS uuid LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_due timestamptz;
    v_id uuid := coalesce(p_id, gen_random_uuid());
    v_kept uuid;
    q {schema}.outbox_queues;
BEGIN
    IF p_priority NOT IN (0, 1, 2) THEN
        RAISE EXCEPTION 'priority % is none of 0 (high), 1 (medium) and 2 (low)', p_priority;
    END IF;
    v_due := v_now + CASE WHEN coalesce(p_delay, '0') BETWEEN '-2000 years' AND '8000 years' THEN coalesce(p_delay, '0') END;
    IF coalesce(v_due > '9999-12-31 23:59:59.999999+00', true) THEN
        RAISE EXCEPTION 'cannot enqueue a letter with the delay %: it would be due beyond the years 1 to 9999; give a shorter one',
            p_delay USING ERRCODE = '22008';
    END IF;
    SELECT * INTO q FROM {schema}.outbox_queues WHERE name = p_queue;
    IF q.max_size IS NOT NULL THEN
        PERFORM {schema}.outbox_refuse_overflow(
            ARRAY[v_id], ARRAY[p_queue], ARRAY[p_event_type], ARRAY[p_idempotency_key], NULL, NULL);
    END IF;
    IF q.ordered AND p_key IS NOT NULL THEN
        PERFORM {schema}.outbox_lock_arrivals(ARRAY[p_queue], ARRAY[p_key]);
    END IF;
    LOOP  -- again if the letter that was in its place has been removed meanwhile
        INSERT INTO {schema}.outbox (
            token, due_at, occurred_at, cycle_at, updated_at, generation, event_version, priority, held, lane, id, queue,
            event_type, key, idempotency_key, source, target, workspace_id, channel, trace_context, content_type, payload,
            why)
        VALUES (
            nextval('{schema}.outbox_token'), v_due, coalesce(p_occurred_at, v_now), v_now, v_now, p_generation, p_event_version,
            p_priority, (coalesce(q.ordered, false) AND p_key IS NOT NULL)::integer,
            CASE WHEN q.ordered AND p_key IS NOT NULL THEN 3 ELSE 0 END, v_id, p_queue, p_event_type, p_key,
            p_idempotency_key, p_source, p_target, p_workspace_id, p_channel, p_trace_context, p_content_type,
            coalesce(p_body, convert_to(p_payload::text, 'UTF8')), '{why_enqueued}')
        ON CONFLICT DO NOTHING;
        EXIT WHEN FOUND;
        v_kept := coalesce(
            (SELECT id FROM {schema}.outbox WHERE id = v_id),
            (SELECT id FROM {schema}.outbox WHERE queue = p_queue AND event_type = p_event_type
                AND idempotency_key = p_idempotency_key));
        IF v_kept IS NOT NULL THEN
            RETURN v_kept;
        END IF;
    END LOOP;
    INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
    VALUES (p_queue, p_event_type, 'enqueued', 1), (p_queue, p_event_type, 'pending', 1);
    IF p_notify THEN
        PERFORM pg_notify(p_channel, '');
    END IF;
    RETURN v_id;
END $$;

-- Give a failed letter another cycle, now: the ended cycle goes to failure_history; the letter keeps its id and its key.
CREATE OR REPLACE FUNCTION {schema}.outbox_replay(
    event_id uuid, p_new_generation bigint, p_replayed_by text, p_reason text DEFAULT ''
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_seq bigint := (SELECT seq FROM {schema}.outbox WHERE id = event_id);
    v_status text;
    v_channel text;
BEGIN
    PERFORM {schema}.outbox_lock_lanes(ARRAY[v_seq]);
    SELECT status, channel INTO v_status, v_channel FROM {schema}.outbox WHERE seq = v_seq FOR NO KEY UPDATE;
    IF v_status IS NULL THEN
        RAISE EXCEPTION 'no letter has the id %', event_id USING ERRCODE = 'RD404', DETAIL = event_id::text;
    END IF;
    IF v_status <> 'failed' THEN
        RAISE EXCEPTION 'cannot replay letter %: it is %, and only a letter that is failed can be replayed',
            event_id, v_status USING ERRCODE = 'RD409', DETAIL = v_status;
    END IF;
    PERFORM {schema}.outbox_replay_rows(
        ARRAY[v_seq], p_new_generation, p_replayed_by, p_reason, '', false, clock_timestamp());
    INSERT INTO {schema}.outbox_audit (at, by, verb, target, count, reason)
    VALUES (clock_timestamp(), p_replayed_by, 'replay', event_id::text, 1, p_reason);
    PERFORM pg_notify(v_channel, '');
END $$;
