-- A letter that failed again elsewhere, and one letter that a person wants to run now.

-- Let a pending letter learn of a newer failure; its attempts and its due time stay. The caller holds its row.
CREATE OR REPLACE FUNCTION {schema}.outbox_newer_failure(p_seq bigint, p_move jsonb, p_now bigint) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_token bigint := nextval('{schema}.outbox_token');
BEGIN
    INSERT INTO {schema}.outbox_deltas
    SELECT t.queue, t.kind, t.status, t.category, t.policy, t.error_type, t.fingerprint, -t.n
      FROM {schema}.outbox_traits(ARRAY[p_seq]) AS t;
    UPDATE {schema}.outbox AS o
       SET token = v_token, act = 0, updated_at = v_now, why = m.why, category = m.category, error_type = m.error_type,
           last_error = m.error, fingerprint = m.fingerprint, first_failed_at = coalesce(o.first_failed_at, v_now),
           release = coalesce(m.release, o.release), odd = o.odd OR m.odd,
           tries = {schema}.outbox_log(o.tries, m.try)
                   || (m.try || jsonb_build_object('attempt', o.attempts, 'at', {schema}.outbox_iso(v_now)))
      FROM jsonb_to_record(p_move) AS m (
           why text, category text, error_type text, error text, fingerprint text, release text, odd boolean, try jsonb)
     WHERE o.seq = p_seq;
    INSERT INTO {schema}.outbox_deltas SELECT t.* FROM {schema}.outbox_traits(ARRAY[p_seq]) AS t;
END $$;

-- Let a letter that waits for its retry or for a person go where a newer failure sends it: due later, or dead. Its
-- attempts stay. The caller holds its lane and its row.
CREATE OR REPLACE FUNCTION {schema}.outbox_follow_failure(p_seq bigint, p_move jsonb, p_now bigint) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_token bigint := nextval('{schema}.outbox_token');
    v_before text := (SELECT o.status FROM {schema}.outbox AS o WHERE o.seq = p_seq);
    v_firsts bigint[] := ARRAY(
        SELECT o.seq FROM {schema}.outbox AS o WHERE o.seq = p_seq AND o.status || '' = 'pending' AND o.lane = 1);
BEGIN
    INSERT INTO {schema}.outbox_deltas
    SELECT t.queue, t.kind, t.status, t.category, t.policy, t.error_type, t.fingerprint, -t.n
      FROM {schema}.outbox_traits(ARRAY[p_seq]) AS t;
    UPDATE {schema}.outbox AS o
       SET status = m."to", token = v_token, act = 0, updated_at = v_now, why = m.why, applied_policy = m.policy,
           due_at = CASE WHEN m."to" = 'pending' THEN v_now + m.delay * interval '1 microsecond' ELSE o.due_at END,
           failed_at = CASE WHEN m."to" = 'failed' THEN v_now END,
           held = CASE WHEN m."to" = 'failed' THEN o.held - (o.lane > 1)::integer ELSE o.held END,
           lane = CASE WHEN m."to" = 'failed' THEN least(o.lane, 1::smallint) ELSE o.lane END,
           category = m.category, error_type = m.error_type, last_error = m.error, fingerprint = m.fingerprint,
           first_failed_at = coalesce(o.first_failed_at, v_now), release = coalesce(m.release, o.release),
           odd = o.odd OR m.odd,
           tries = {schema}.outbox_log(o.tries, m.try)
                   || (m.try || jsonb_build_object('attempt', o.attempts, 'at', {schema}.outbox_iso(v_now)))
      FROM jsonb_to_record(p_move) AS m (
           "to" text, why text, delay bigint, category text, error_type text, error text, fingerprint text, policy text,
           release text, odd boolean, try jsonb)
     WHERE o.seq = p_seq;
    INSERT INTO {schema}.outbox_deltas SELECT t.* FROM {schema}.outbox_traits(ARRAY[p_seq]) AS t;
    IF p_move ->> 'to' = 'failed' THEN
        INSERT INTO {schema}.outbox_groups
        VALUES (p_move ->> 'fingerprint', p_move ->> 'error_type', p_move ->> 'title', v_now, v_now)
        ON CONFLICT (fingerprint) DO UPDATE SET last_seen_at = excluded.last_seen_at;
        PERFORM {schema}.outbox_advance(v_firsts);
    ELSIF v_before = 'failed' THEN
        PERFORM {schema}.outbox_line_up(ARRAY[p_seq]);
    END IF;
END $$;

-- Let a dead letter begin its next cycle with a newer failure: due as the draft says, or dead again. The caller holds its
-- lane and its row.
CREATE OR REPLACE FUNCTION {schema}.outbox_fail_again(
    p_seq bigint, p_rich jsonb, p_reason text, p_delay bigint, p_due bigint, p_now bigint
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
BEGIN
    PERFORM {schema}.outbox_replay_rows(ARRAY[p_seq], NULL, '', p_reason, '', false, v_now);
    PERFORM {schema}.outbox_enrich(p_rich #- '{0,accepted_us}', ARRAY[p_seq], v_now);  -- it was created before
    UPDATE {schema}.outbox
       SET due_at = coalesce({schema}.outbox_at(p_due), v_now + p_delay * interval '1 microsecond')
     WHERE seq = p_seq;
END $$;

-- Claim one pending letter, due or not.
CREATE OR REPLACE FUNCTION {schema}.outbox_take_letter(
    p_id uuid, p_lease double precision, p_worker text, p_waiting boolean, p_now bigint, p_lease_now bigint
) RETURNS SETOF {schema}.outbox_claimed LANGUAGE plpgsql
AS $$
DECLARE
    v_now timestamptz := coalesce({schema}.outbox_at(p_now), clock_timestamp());
    v_lease timestamptz := coalesce(
        {schema}.outbox_at(p_lease_now) + p_lease * interval '1 second', {schema}.outbox_lease_end(p_lease));
    v_token bigint;
    v_seq bigint;
BEGIN
    PERFORM {schema}.outbox_durable();
    SELECT o.seq INTO v_seq FROM {schema}.outbox AS o
     WHERE o.id = p_id AND o.status || '' = 'pending'
       AND (o.held = 0
            OR p_waiting AND o.held = (SELECT count(*) FROM {schema}.outbox_waits AS w WHERE w.seq = o.seq))
       FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_token := nextval('{schema}.outbox_token');  -- under the lock: a letter's numbers only grow
    PERFORM {schema}.outbox_count_out(ARRAY[v_seq], 'in_flight');
    UPDATE {schema}.outbox AS o
       SET status = 'in_flight', attempts = o.attempts + 1, token = v_token, act = 0, lease_until = v_lease,
           worker = p_worker, updated_at = v_now
     WHERE o.seq = v_seq;
    RETURN QUERY SELECT ({schema}.outbox_claimed_of(o)).* FROM {schema}.outbox AS o WHERE o.seq = v_seq;
END $$;

-- The same for a letter that waits for no other, under the name that workers of the schema before call.
CREATE OR REPLACE FUNCTION {schema}.outbox_take_one(
    p_id uuid, p_lease double precision, p_worker text, p_now bigint, p_lease_now bigint
) RETURNS SETOF {schema}.outbox_claimed LANGUAGE sql
AS $$ SELECT * FROM {schema}.outbox_take_letter(p_id, p_lease, p_worker, false, p_now, p_lease_now) $$;
