-- The operator's acts, many rows at a time.
--
-- The caller holds the lanes and the rows, has checked that the verb fits, and writes the audit entry.

-- Start a new cycle of failed letters; the ended one goes to failure_history.
CREATE OR REPLACE FUNCTION {schema}.outbox_replay_rows(
    p_seqs bigint[], p_generation bigint, p_by text, p_reason text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_token bigint := nextval('{schema}.outbox_token');
BEGIN
    INSERT INTO {schema}.outbox_deltas
    SELECT queue, event_type, 'failed', coalesce(category, ''), coalesce(applied_policy, ''), coalesce(error_type, ''),
           coalesce(fingerprint, ''), -count(*) FROM {schema}.outbox WHERE seq = ANY (p_seqs) GROUP BY 1, 2, 4, 5, 6, 7
    UNION ALL
    SELECT queue, event_type, 'pending', '', '', '', '', count(*) FROM {schema}.outbox
     WHERE seq = ANY (p_seqs) GROUP BY 1, 2;
    UPDATE {schema}.outbox AS o
       SET status = 'pending', token = v_token, act = 0, updated_at = p_now, due_at = p_now, cycle_at = p_now,
           attempts = 0, losses = 0, cycles = o.cycles + 1, why = '{why_replayed}', category = NULL, error_type = NULL,
           last_error = NULL, fingerprint = NULL, first_failed_at = NULL, failed_at = NULL, tries = NULL,
           applied_policy = NULL, plan = nullif(p_plan, ''), generation = coalesce(p_generation, o.generation),
           odd = o.odd OR p_odd,
           failure_history =
               CASE WHEN jsonb_typeof(o.failure_history) <> 'array' THEN '[]'  -- not written by redrive
                    WHEN jsonb_array_length(o.failure_history) >= {cycles} THEN o.failure_history - 0
                    ELSE o.failure_history END
               || jsonb_strip_nulls(jsonb_build_object(
                   'attempts', o.attempts, 'losses', nullif(o.losses, 0), 'error_type', nullif(o.error_type, ''),
                   'last_error', nullif(o.last_error, ''), 'category', nullif(o.category, ''),
                   'fingerprint', nullif(o.fingerprint, ''), 'why', nullif(o.why, ''),
                   'first_failed_at', {schema}.outbox_iso(o.first_failed_at),
                   'failed_at', {schema}.outbox_iso(o.failed_at),
                   'tries', CASE WHEN jsonb_typeof(o.tries) = 'array' THEN o.tries END, 'generation', o.generation,
                   'release', o.release, 'replayed_at', {schema}.outbox_iso(p_now), 'replayed_by', nullif(p_by, ''),
                   'reason', nullif(p_reason, ''), 'plan', nullif(p_plan, '')))
     WHERE o.seq = ANY (p_seqs);
    PERFORM {schema}.outbox_line_up(p_seqs);
END $$;

-- Archive failed letters, or cancel pending ones.
CREATE OR REPLACE FUNCTION {schema}.outbox_archive_rows(
    p_seqs bigint[], p_by text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE
    v_token bigint := nextval('{schema}.outbox_token');
    v_firsts bigint[] := ARRAY(
        SELECT seq FROM {schema}.outbox WHERE seq = ANY (p_seqs) AND status = 'pending' AND lane = 1);
BEGIN
    PERFORM {schema}.outbox_count_out(p_seqs, 'archived');
    UPDATE {schema}.outbox AS o
       SET status = 'archived', archived_from = o.status, deleted_at = p_now, token = v_token, act = 0,
           updated_at = p_now, why = '{why_archived_by}' || p_by, held = o.held - (o.lane > 1)::integer,
           lane = least(o.lane, 1::smallint), plan = nullif(p_plan, ''), odd = o.odd OR p_odd
     WHERE o.seq = ANY (p_seqs);
    PERFORM {schema}.outbox_advance(v_firsts);
END $$;

-- Bring archived letters back to what they were.
CREATE OR REPLACE FUNCTION {schema}.outbox_restore_rows(
    p_seqs bigint[], p_by text, p_plan text, p_odd boolean, p_now timestamptz
) RETURNS void LANGUAGE plpgsql
AS $$
DECLARE v_token bigint := nextval('{schema}.outbox_token');
BEGIN
    INSERT INTO {schema}.outbox_deltas (queue, kind, status, n)
    SELECT queue, event_type, 'archived', -count(*) FROM {schema}.outbox WHERE seq = ANY (p_seqs) GROUP BY 1, 2;
    UPDATE {schema}.outbox AS o
       SET status = o.archived_from, archived_from = NULL, deleted_at = NULL, token = v_token, act = 0,
           updated_at = p_now, why = '{why_restored_by}' || p_by, plan = nullif(p_plan, ''), odd = o.odd OR p_odd
     WHERE o.seq = ANY (p_seqs);
    INSERT INTO {schema}.outbox_deltas SELECT t.* FROM {schema}.outbox_traits(p_seqs) AS t;
    PERFORM {schema}.outbox_line_up(ARRAY(
        SELECT seq FROM {schema}.outbox WHERE seq = ANY (p_seqs) AND status = 'pending'));
END $$;

-- Remove letters.
CREATE OR REPLACE FUNCTION {schema}.outbox_purge_rows(p_seqs bigint[]) RETURNS void LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM {schema}.outbox_count_out(p_seqs, 'purged');
    PERFORM {schema}.outbox_leave_names(p_seqs);
    PERFORM {schema}.outbox_let_go(ARRAY(  -- a letter of an open transaction may wait for it: it must not find it missing
        SELECT seq FROM {schema}.outbox WHERE seq = ANY (p_seqs) AND status = 'delivered'));
    DELETE FROM {schema}.outbox WHERE seq = ANY (p_seqs);
    DELETE FROM {schema}.outbox_waits WHERE seq = ANY (p_seqs);
END $$;
