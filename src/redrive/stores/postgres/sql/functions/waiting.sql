-- Letters that wait for other letters (`after`).

-- Let new letters wait for others. p_seqs holds the seq of every draft, p_token is their token. p_meant maps the id of a
-- draft of this call that is a duplicate to its number in the call and the id that is kept: a letter that waits for such
-- a draft waits for what is kept. p_lasting: the transaction is the user's own, and may stay open.
CREATE OR REPLACE FUNCTION {schema}.outbox_wait(p_rich jsonb, p_seqs bigint[], p_token bigint, p_meant jsonb, p_lasting boolean)
RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_seqs bigint[];  -- the letter that waits, and in v_ids the one that it waits for, pair by pair
    v_ids uuid[];
    v_failures smallint[];  -- what it does when that one is dead
    v_unknown text;
    v_seq bigint;
    v_held bigint;
BEGIN
    SELECT array_agg(p_seqs[r.n] ORDER BY r.n, a.place), array_agg(coalesce(
               CASE WHEN (p_meant -> a.id ->> 0)::bigint < r.n THEN p_meant -> a.id ->> 1 END, a.id)::uuid ORDER BY r.n, a.place),
           array_agg(coalesce(r.after_failure, 0::smallint) ORDER BY r.n, a.place)
      INTO v_seqs, v_ids, v_failures
      FROM jsonb_to_recordset(p_rich) AS r (n bigint, after text[], after_failure smallint)
     CROSS JOIN LATERAL (SELECT 1 FROM {schema}.outbox AS o WHERE o.seq = p_seqs[r.n] LIMIT 1) AS kept
     CROSS JOIN LATERAL unnest(r.after) WITH ORDINALITY AS a (id, place)
     WHERE cardinality(r.after) > 0;
    IF v_seqs IS NULL THEN
        RETURN;
    END IF;
    -- A short transaction locks them, so that no worker delivers one between our look and our commit. A user's own
    -- transaction only keeps them from being removed: no worker waits for it, and outbox_make_sure looks again later.
    IF p_lasting THEN
        PERFORM 1 FROM {schema}.outbox AS o WHERE o.id = ANY (v_ids) ORDER BY o.seq FOR KEY SHARE;
    ELSE
        PERFORM 1 FROM {schema}.outbox AS o WHERE o.id = ANY (v_ids) ORDER BY o.seq FOR SHARE;
    END IF;
    -- LIMIT makes the planner look each up in the index: after most letters were removed it takes the table for empty.
    SELECT u.id INTO v_unknown  -- those that come later in the same call are unknown, too
      FROM unnest(v_ids, v_seqs) WITH ORDINALITY AS u (id, seq, place)
      LEFT JOIN LATERAL (SELECT n.seq, n.token FROM {schema}.outbox AS n WHERE n.id = u.id LIMIT 1) AS o ON true
     WHERE o.seq IS NULL OR (o.token = p_token AND o.seq >= u.seq) ORDER BY u.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'no letter has the id %', v_unknown USING ERRCODE = 'RD404', DETAIL = v_unknown;
    END IF;
    IF p_meant <> '{}' THEN  -- and name what is kept: `after` stands last in the extras, and all ids have one length
        UPDATE {schema}.outbox AS o
           SET extras = overlay(o.extras PLACING k.ids FROM octet_length(o.extras) - octet_length(k.ids) + 1)
          FROM (SELECT u.seq, convert_to('["' || string_agg(u.id::text, '","' ORDER BY u.place) || '"]}', 'UTF8') AS ids
                  FROM unnest(v_seqs, v_ids) WITH ORDINALITY AS u (seq, id, place) GROUP BY u.seq) AS k
         WHERE o.seq = k.seq AND convert_to('"after":', 'UTF8') = substring(
               o.extras FROM octet_length(o.extras) - octet_length(k.ids) - 7 FOR 8);
    END IF;
    FOR v_seq, v_held IN
        WITH waits AS (
            INSERT INTO {schema}.outbox_waits (on_seq, seq, failure)
            SELECT DISTINCT o.seq, u.seq, u.failure FROM unnest(v_ids, v_seqs, v_failures) AS u (id, seq, failure)
             CROSS JOIN LATERAL (SELECT n.seq, n.status FROM {schema}.outbox AS n WHERE n.id = u.id LIMIT 1) AS o
             WHERE o.status <> 'delivered' RETURNING seq),
        unsure AS (INSERT INTO {schema}.outbox_unsure SELECT DISTINCT seq FROM waits WHERE p_lasting)
        SELECT seq, count(*) FROM waits GROUP BY seq
    LOOP
        UPDATE {schema}.outbox SET held = held + v_held WHERE seq = v_seq;
    END LOOP;
END $$;

-- Let go the letters that waited for these, which were delivered.
CREATE OR REPLACE FUNCTION {schema}.outbox_let_go(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.outbox_waits) THEN
        RETURN;
    END IF;
    WITH over AS (DELETE FROM {schema}.outbox_waits WHERE on_seq = ANY (p_seqs) RETURNING seq)
    UPDATE {schema}.outbox AS o SET held = o.held - w.n
      FROM (SELECT seq, count(*) AS n FROM over GROUP BY seq) AS w WHERE o.seq = w.seq;
END $$;

-- Let go those letters of outbox_unsure that wait for one that was delivered already; every worker looks before it rests.
CREATE OR REPLACE FUNCTION {schema}.outbox_make_sure() RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
DECLARE v_seqs bigint[];
BEGIN
    WITH looked_at AS (
        DELETE FROM {schema}.outbox_unsure WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM {schema}.outbox_unsure LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING seq)
    SELECT array_agg(seq) INTO v_seqs FROM looked_at;
    IF v_seqs IS NULL THEN
        RETURN;
    END IF;
    -- A call that delivers one of them right now did not see that a letter waits: wait for its end, then look.
    PERFORM 1 FROM {schema}.outbox AS o
      WHERE o.seq IN (SELECT w.on_seq FROM {schema}.outbox_waits AS w WHERE w.seq = ANY (v_seqs))
      ORDER BY o.seq FOR SHARE;
    PERFORM {schema}.outbox_let_go(ARRAY(
        SELECT DISTINCT w.on_seq FROM {schema}.outbox_waits AS w
          JOIN {schema}.outbox AS o ON o.seq = w.on_seq  -- one that is gone was purged before it was delivered
         WHERE w.seq = ANY (v_seqs) AND o.status = 'delivered'));
END $$;

-- Some letters wait for one that is dead: failed, archived or removed. Let those with after_failure=run go on, and return
-- those with after_failure=fail. p_queue: of that queue alone. A letter behind another of its key is held by more than its
-- waits.
CREATE OR REPLACE FUNCTION {schema}.outbox_stranded(p_limit integer, p_queue text) RETURNS SETOF uuid LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM {schema}.outbox_waits WHERE failure > 0) THEN
        RETURN;
    END IF;
    WITH dead AS (
        SELECT w.on_seq, w.seq FROM {schema}.outbox_waits AS w
          JOIN {schema}.outbox AS b ON b.seq = w.seq LEFT JOIN {schema}.outbox AS o ON o.seq = w.on_seq
         WHERE w.failure = 1 AND coalesce(o.status, 'archived') IN ('failed', 'archived')
           AND (p_queue IS NULL OR b.queue = p_queue)
         LIMIT p_limit FOR UPDATE OF w SKIP LOCKED),
    over AS (
        DELETE FROM {schema}.outbox_waits AS w USING dead
         WHERE w.on_seq = dead.on_seq AND w.seq = dead.seq RETURNING w.seq)
    UPDATE {schema}.outbox AS o SET held = o.held - g.n
      FROM (SELECT seq, count(*) AS n FROM over GROUP BY seq) AS g WHERE o.seq = g.seq;
    RETURN QUERY
        SELECT DISTINCT b.id FROM {schema}.outbox_waits AS w
          JOIN {schema}.outbox AS b ON b.seq = w.seq LEFT JOIN {schema}.outbox AS o ON o.seq = w.on_seq
         WHERE w.failure = 2 AND coalesce(o.status, 'archived') IN ('failed', 'archived') AND b.status || '' = 'pending'
           AND (p_queue IS NULL OR b.queue = p_queue)
           AND b.held = (SELECT count(*) FROM {schema}.outbox_waits AS n WHERE n.seq = b.seq) LIMIT p_limit;
END $$;

-- Which of these letters another one waits for, or would after a replay: pairs of seqs, the letter and a waiting one.
CREATE OR REPLACE FUNCTION {schema}.outbox_awaited(p_seqs bigint[]) RETURNS TABLE (seq bigint, waiting uuid) LANGUAGE sql STABLE
SET enable_seqscan = off SET jit = off
AS $$
    SELECT DISTINCT ON (w.on_seq) w.on_seq, b.id FROM {schema}.outbox_waits AS w JOIN {schema}.outbox AS b ON b.seq = w.seq
     WHERE w.on_seq = ANY (p_seqs) AND b.status IN ('pending', 'failed') ORDER BY w.on_seq, b.seq
$$;
