-- The statements that are sent as they stand. $1, $2 … are their parameters; {schema} is the quoted schema.

-- name: now
SELECT {schema}.outbox_us(clock_timestamp())

-- name: put
SELECT place, kept FROM {schema}.outbox_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)

-- name: exchange
SELECT * FROM {schema}.outbox_exchange($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)

-- name: done
SELECT o.seq FROM {schema}.outbox AS o JOIN unnest($1::bigint[], $2::bigint[]) AS c (seq, act)
    ON o.seq = c.seq AND o.act = c.act

-- name: extend
WITH moment AS (
    SELECT coalesce({schema}.outbox_at($7), clock_timestamp()) AS now,
           coalesce({schema}.outbox_at($8) + $9 * interval '1 second', {schema}.outbox_lease_end($9)) AS until),
beat AS (
    INSERT INTO {schema}.outbox_workers (name, kinds, in_flight, seen_at, lease_until)
    SELECT $1, $2, $3, now, until FROM moment
    ON CONFLICT (name) DO UPDATE SET kinds = excluded.kinds, in_flight = excluded.in_flight,
        seen_at = excluded.seen_at, lease_until = excluded.lease_until),
forgotten AS (
    DELETE FROM {schema}.outbox_workers WHERE seen_at < (SELECT now FROM moment) - interval '1 hour' AND name <> $1),
renewed AS (
    UPDATE {schema}.outbox AS o SET lease_until = (SELECT until FROM moment)
      FROM unnest($4::bigint[], $5::bigint[]) AS c (seq, token)
     WHERE o.seq = c.seq AND o.token = c.token AND o.status || '' = 'in_flight' RETURNING o.seq, o.token)
SELECT 0 AS seq, NULL AS token, lease_us, moved FROM {schema}.outbox_tick($10, $11)
UNION ALL SELECT seq, token, NULL, NULL FROM renewed WHERE $6::boolean ORDER BY seq

-- name: tick
-- The clock need not survive a power cut by itself: a transaction that uses it writes it to disk.
SELECT lease_us, moved, set_config('synchronous_commit', 'off', true), EXISTS (
           SELECT 1 FROM {schema}.outbox AS o
            WHERE o.status = 'in_flight' AND o.lease_until < coalesce({schema}.outbox_at($3), {schema}.outbox_at(lease_us))
       ) AS over
  FROM {schema}.outbox_tick($1, $2)

-- name: expired
SELECT {lean} FROM {schema}.outbox
 WHERE status = 'in_flight'
   AND lease_until < coalesce({schema}.outbox_at($1), (SELECT {schema}.outbox_at(lease_us) FROM {schema}.outbox_clock))
 ORDER BY lease_until LIMIT $2

-- name: left
-- One statement, so one snapshot: a letter that is taken back between two statements would appear in neither.
SELECT (SELECT {schema}.outbox_us(min(due.due_at)) - coalesce($3, {schema}.outbox_us(clock_timestamp()))
          FROM unnest($1::text[], $2::text[]) AS w (queue, kind)
         CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS p (priority)
         CROSS JOIN LATERAL (
               SELECT due_at FROM {schema}.outbox AS o
                WHERE o.status = 'pending' AND o.held = 0 AND o.queue = w.queue AND o.event_type = w.kind
                  AND o.priority = p.priority AND (o.generation IS NULL OR $4::bigint IS NULL OR o.generation = $4)
                ORDER BY o.due_at, o.seq LIMIT 1) AS due
         WHERE NOT EXISTS (SELECT 1 FROM {schema}.outbox_queues AS q WHERE q.name = w.queue AND q.paused)) AS due,
       (SELECT coalesce(sum(n), 0)::bigint FROM (
            SELECT queue, kind, status, n FROM {schema}.outbox_tallies
            UNION ALL SELECT queue, kind, status, n FROM {schema}.outbox_deltas) AS t
          JOIN unnest($1::text[], $2::text[]) AS w (queue, kind) ON t.queue = w.queue AND t.kind = w.kind
         WHERE t.status = 'in_flight') AS in_flight

-- name: place_arrivals
SELECT {schema}.outbox_place_all($1)

-- name: make_sure
SELECT {schema}.outbox_make_sure()

-- name: fold
SELECT {schema}.outbox_fold($1)

-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)  -- a notice need not survive a power cut

-- ---------------------------------------------------------------------- what all workers share

-- name: declare
INSERT INTO {schema}.outbox_queues AS q (name, ordered, max_size, rate, max_in_flight, allowance, allowance_at)
VALUES ($1, $2, $3, $4::double precision, $5, greatest(1, coalesce($4::double precision, 0)), coalesce({schema}.outbox_at($6), clock_timestamp()))
ON CONFLICT (name) DO UPDATE SET ordered = excluded.ordered, max_size = excluded.max_size, rate = excluded.rate,
    max_in_flight = excluded.max_in_flight,  -- under another rate the allowance starts afresh
    allowance = CASE WHEN q.rate IS NOT DISTINCT FROM excluded.rate THEN q.allowance ELSE excluded.allowance END,
    allowance_at = CASE WHEN q.rate IS NOT DISTINCT FROM excluded.rate THEN q.allowance_at ELSE excluded.allowance_at END

-- name: is_ordered
SELECT ordered FROM {schema}.outbox_queues WHERE name = $1 FOR UPDATE

-- name: wait_for_users
SELECT set_config('lock_timeout', '200ms', true)

-- name: lock_queues
LOCK TABLE {schema}.outbox_queues IN ACCESS EXCLUSIVE MODE

-- name: order
SELECT {schema}.outbox_order($1, $2)

-- name: queues
SELECT n.name, coalesce(q.ordered, false) AS ordered, q.max_size, q.rate, q.max_in_flight,
       coalesce(q.paused, false) AS paused, coalesce(q.paused_by, '') AS paused_by, coalesce(q.reason, '') AS reason
  FROM (SELECT name FROM {schema}.outbox_queues
        UNION SELECT queue FROM {schema}.outbox_tallies WHERE status = 'enqueued'
        UNION SELECT queue FROM {schema}.outbox_deltas WHERE status = 'enqueued') AS n
  LEFT JOIN {schema}.outbox_queues AS q ON q.name = n.name ORDER BY n.name

-- name: pause
INSERT INTO {schema}.outbox_queues (name, paused, paused_by, reason) VALUES ($1, $2, $3, $4)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, paused_by = excluded.paused_by, reason = excluded.reason

-- name: workers
SELECT name, kinds, coalesce(held.n, 0) AS in_flight, {schema}.outbox_us(seen_at) AS seen_us,
       lease_until >= coalesce({schema}.outbox_at($1), (  -- where no process ticks, no worker lives
           SELECT {schema}.outbox_at(lease_us) + greatest(clock_timestamp() - wall_at, '0') FROM {schema}.outbox_clock)) AS alive
  FROM {schema}.outbox_workers LEFT JOIN (
       SELECT worker, count(*) AS n FROM {schema}.outbox WHERE status = 'in_flight' GROUP BY worker) AS held
    ON held.worker = name ORDER BY name

-- name: leave
DELETE FROM {schema}.outbox_workers WHERE name = $1

-- name: lock_state
SELECT pg_advisory_xact_lock(hashtextextended($2, hashtextextended($1, 13)))

-- name: read_state
SELECT value FROM {schema}.outbox_state WHERE room = $1 AND name = $2

-- name: write_state
INSERT INTO {schema}.outbox_state VALUES ($1, $2, $3) ON CONFLICT (room, name) DO UPDATE SET value = excluded.value

-- name: breakers
SELECT name, value FROM {schema}.outbox_state WHERE room = 'breaker'

-- name: handled
INSERT INTO {schema}.event_handled (handler_name, idempotency_key, handled_at)
VALUES ($1, $2, coalesce({schema}.outbox_at($3), clock_timestamp())) ON CONFLICT DO NOTHING RETURNING 1

-- name: retain_handled
SELECT {schema}.outbox_retain_handled($1, $2, $3)

-- ---------------------------------------------------------------------- a transaction of the user's own
-- Sent by other drivers too, so every parameter is used once, in order, with its type.

-- name: accept
SELECT {schema}.outbox_accept(CAST($1 AS text), CAST($2 AS text), CAST($3 AS text), CAST($4 AS bytea), CAST($5 AS text),
    CAST($6 AS text), CAST($7 AS text), CAST($8 AS integer), CAST($9 AS bigint), CAST($10 AS bigint), CAST($11 AS text),
    CAST($12 AS bigint), CAST($13 AS text), CAST($14 AS text), CAST($15 AS text), CAST($16 AS bytea),
    CAST($17 AS boolean), CAST($18 AS boolean), CAST($19 AS text), CAST($20 AS text), CAST($21 AS boolean)) AS kept,
    current_setting('synchronous_commit') AS synchronous_commit

-- name: accept_many
SELECT kept, current_setting('synchronous_commit') AS synchronous_commit FROM {schema}.outbox_accept_many(CAST($1 AS text[]), CAST($2 AS text[]), CAST($3 AS text[]),
    CAST($4 AS bytea[]), CAST($5 AS text[]), CAST($6 AS text[]), CAST($7 AS text[]), CAST($8 AS integer[]),
    CAST($9 AS bigint[]), CAST($10 AS bigint[]), CAST($11 AS text[]), CAST($12 AS bigint[]), CAST($13 AS text[]),
    CAST($14 AS text[]), CAST($15 AS text[]), CAST($16 AS bytea[]), CAST($17 AS boolean[]), CAST($18 AS boolean[]),
    CAST($19 AS text[]), CAST($20 AS text[]), CAST($21 AS boolean)) AS kept

-- name: handle_once
INSERT INTO {schema}.event_handled (handler_name, idempotency_key, handled_at)
VALUES (CAST($1 AS text), CAST($2 AS text), clock_timestamp()) ON CONFLICT DO NOTHING RETURNING 1

-- ---------------------------------------------------------------------- events with several handlers

-- name: broadcast
SELECT queue, kind, events, letters FROM {schema}.outbox_broadcast($1, $2)

-- name: subscriptions
SELECT event_type, handler_name, queue FROM {schema}.subscription ORDER BY event_type, handler_name

-- name: subscribe
INSERT INTO {schema}.subscription AS s (event_type, handler_name, queue) VALUES ($1, $2, $3)
ON CONFLICT (event_type, handler_name) DO UPDATE SET queue = excluded.queue WHERE s.queue <> excluded.queue RETURNING 1

-- name: unsubscribe
DELETE FROM {schema}.subscription WHERE event_type = $1 AND handler_name = $2 RETURNING 1

-- ---------------------------------------------------------------------- the operator's side

-- name: get
SELECT {letter} FROM {schema}.outbox WHERE id = $1

-- name: standing
SELECT {schema}.outbox_us(o.due_at) - coalesce($2, {schema}.outbox_us(clock_timestamp())) AS due_in,
       ARRAY(SELECT coalesce(other.id || ' ' || other.status, '')
               FROM {schema}.outbox_waits AS w LEFT JOIN {schema}.outbox AS other ON other.seq = w.on_seq
              WHERE w.seq = o.seq ORDER BY other.id LIMIT $3) AS after,
       (SELECT count(*) FROM {schema}.outbox_waits AS w WHERE w.seq = o.seq) AS after_count,
       CASE WHEN o.lane > 1 THEN (
            SELECT first.id::text FROM {schema}.outbox AS first
             WHERE first.queue = o.queue AND first.key = o.key AND first.lane = 1
               AND first.status IN ('pending', 'in_flight') ORDER BY first.seq LIMIT 1) END AS earlier
  FROM {schema}.outbox AS o WHERE o.id = $1 AND o.status = 'pending'

-- name: letters
SELECT {letter} FROM {schema}.outbox WHERE seq = ANY ($1::bigint[]) ORDER BY seq

-- name: oldest_failed
SELECT {letter} FROM {schema}.outbox WHERE status = 'failed' ORDER BY failed_at, seq LIMIT 1

-- name: histories
SELECT coalesce((SELECT max(cycles) FROM {schema}.outbox WHERE cycles > 0), 0) AS largest,
       (SELECT count(*) FROM {schema}.outbox WHERE cycles > $1 AND cycles > 0) AS long

-- name: tallies
SELECT queue, kind, status, category, policy, error_type, fingerprint, sum(n)::bigint AS n
  FROM (SELECT * FROM {schema}.outbox_tallies UNION ALL SELECT * FROM {schema}.outbox_deltas) AS t
 GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(n) <> 0

-- name: tallies_of
SELECT queue, kind, status, category, policy, error_type, fingerprint, sum(n)::bigint AS n
  FROM (SELECT * FROM {schema}.outbox_tallies WHERE status = $1
        UNION ALL SELECT * FROM {schema}.outbox_deltas WHERE status = $1) AS t
 GROUP BY 1, 2, 3, 4, 5, 6, 7 HAVING sum(n) <> 0

-- name: groups
SELECT fingerprint, error_type, title, {schema}.outbox_us(first_seen_at) AS first, {schema}.outbox_us(last_seen_at) AS last
  FROM {schema}.outbox_groups WHERE fingerprint = ANY ($1::text[])

-- name: searchable
SELECT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('{schema}.outbox_failed_error')), false)

-- name: lock_lanes
SELECT {schema}.outbox_lock_lanes($1)

-- name: look
SELECT seq, id::text AS id FROM {schema}.outbox WHERE id = ANY ($1::uuid[])

-- name: lock
SELECT seq, id::text AS id, status, token FROM {schema}.outbox WHERE seq = ANY ($1::bigint[]) ORDER BY seq FOR NO KEY UPDATE

-- name: replay
SELECT {schema}.outbox_replay_rows($1, $2, $3, $4, $5, $6, coalesce({schema}.outbox_at($7), clock_timestamp()))

-- name: archive
SELECT {schema}.outbox_archive_rows($1, $2, $3, $4, coalesce({schema}.outbox_at($5), clock_timestamp()))

-- name: restore
SELECT {schema}.outbox_restore_rows($1, $2, $3, $4, coalesce({schema}.outbox_at($5), clock_timestamp()))

-- name: purge
SELECT {schema}.outbox_purge_rows($1)

-- name: retain
SELECT {schema}.outbox_retain($1, $2, $3, $4, $5)

-- name: plans_page
SELECT id, value FROM {schema}.outbox_plans WHERE id > $1 ORDER BY id LIMIT $2

-- A plan that a caller has locked is passed over: retention comes round to it again.
-- name: forget_plans
DELETE FROM {schema}.outbox_plans
 WHERE id IN (SELECT id FROM {schema}.outbox_plans WHERE id = ANY ($1) ORDER BY id FOR UPDATE SKIP LOCKED)

-- name: newest_token
SELECT nextval('{schema}.outbox_token')

-- name: read_plan
SELECT value FROM {schema}.outbox_plans WHERE id = $1

-- name: lock_plan
SELECT value FROM {schema}.outbox_plans WHERE id = $1 FOR UPDATE

-- name: plans
SELECT value FROM {schema}.outbox_plans

-- name: open_plans
SELECT p.value FROM {schema}.outbox_state AS s JOIN {schema}.outbox_plans AS p ON p.id = s.name WHERE s.room = 'open plan'

-- Plans that are running or paused are few: workers find them here without reading all that ever were.
-- name: open_plan
INSERT INTO {schema}.outbox_state VALUES ('open plan', $1, '') ON CONFLICT DO NOTHING

-- name: close_plan
DELETE FROM {schema}.outbox_state WHERE room = 'open plan' AND name = $1

-- Between two ticks the wall clock tells how long ago the last one was.
-- name: lease_now
SELECT coalesce($1, lease_us + greatest(round(date_part('epoch', clock_timestamp() - wall_at) * 1e6)::bigint, 0))
  FROM {schema}.outbox_clock WHERE one

-- name: write_plan
INSERT INTO {schema}.outbox_plans VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET value = excluded.value

-- name: edit
UPDATE {schema}.outbox
   SET payload = $2, content_type = $3, payload_version = payload_version + 1,
       token = nextval('{schema}.outbox_token'), updated_at = coalesce({schema}.outbox_at($4), clock_timestamp())
 WHERE seq = $1

-- name: version
SELECT status, payload_version FROM {schema}.outbox WHERE seq = $1 FOR NO KEY UPDATE

-- name: audit
INSERT INTO {schema}.outbox_audit (at, by, verb, target, count, reason)
VALUES (coalesce({schema}.outbox_at($1), clock_timestamp()), $2, $3, $4, $5, $6)

-- name: audit_log
SELECT seq, {schema}.outbox_us(at) AS at_us, by, verb, target, count, reason
  FROM {schema}.outbox_audit ORDER BY seq DESC LIMIT $1

-- name: answer
-- Old ones go here too: where no worker runs, no other call removes them.
WITH old AS (
    DELETE FROM {schema}.outbox_calls WHERE call IN (
        SELECT call FROM {schema}.outbox_calls WHERE at < now() - interval '1 hour' LIMIT 1000 FOR UPDATE SKIP LOCKED))
INSERT INTO {schema}.outbox_calls (call, answer) VALUES ($1, $2)

-- name: answered
SELECT answer FROM {schema}.outbox_calls WHERE call = $1

-- name: keep_names
INSERT INTO {schema}.outbox_names AS n (digest, name, kept_us)
SELECT u.digest, u.name, c.lease_us FROM unnest($1::text[], $2::text[]) AS u (digest, name), {schema}.outbox_clock AS c ORDER BY 1
ON CONFLICT (digest) DO UPDATE SET kept_us = greatest(n.kept_us, excluded.kept_us)

-- name: names
SELECT digest, name FROM {schema}.outbox_names WHERE digest = ANY ($1::text[])

-- name: lock_call
SELECT pg_advisory_xact_lock($1), {schema}.outbox_durable()

-- ---------------------------------------------------------------------- letters from other stores, and to them

-- name: cargo
SELECT {letter}, archived_from,
       ARRAY(SELECT coalesce(other.id::text, '') FROM {schema}.outbox_waits AS w
               LEFT JOIN {schema}.outbox AS other ON other.seq = w.on_seq WHERE w.seq = outbox.seq ORDER BY 1) AS awaited
  FROM {schema}.outbox WHERE seq > $1 ORDER BY seq LIMIT $2

-- name: next_seqs
SELECT nextval('{schema}.outbox_seq') FROM {schema}.outbox_durable(), generate_series(1, $1::integer)

-- name: ordered_queues
SELECT name FROM {schema}.outbox_queues WHERE ordered AND name = ANY ($1::text[]) ORDER BY name

-- name: lock_arrivals
SELECT {schema}.outbox_lock_arrivals($1, $2)

-- name: place
SELECT {schema}.outbox_place_free($1, $2)

-- name: kept_already
SELECT d.n, o.id::text AS id, {schema}.outbox_us(o.updated_at) AS updated_us
  FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::boolean[])
       WITH ORDINALITY AS d (id, queue, kind, idempotency_key, wide, n)
 CROSS JOIN LATERAL (
       SELECT seq, id, updated_at, 0 AS rank FROM {schema}.outbox AS i WHERE i.id = d.id
       UNION ALL
       SELECT seq, id, updated_at, 1 FROM {schema}.outbox AS k
        WHERE k.queue = d.queue AND k.event_type = d.kind AND k.idempotency_key = d.idempotency_key
       UNION ALL
       SELECT seq, id, updated_at, 2 FROM {schema}.outbox AS w
        WHERE d.wide AND w.queue_wide AND w.queue = d.queue AND w.idempotency_key = d.idempotency_key
        ORDER BY rank LIMIT 1) AS o

-- name: awaited
SELECT id::text AS id, seq, status FROM {schema}.outbox WHERE id = ANY ($1::uuid[]) ORDER BY seq FOR SHARE

-- name: adopt_waits
WITH waits AS (
    INSERT INTO {schema}.outbox_waits (on_seq, seq, failure)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::smallint[])
    ON CONFLICT DO NOTHING RETURNING seq)
UPDATE {schema}.outbox AS o SET held = o.held + w.n
  FROM (SELECT seq, count(*) AS n FROM waits GROUP BY seq) AS w WHERE o.seq = w.seq

-- name: adopt_counts
INSERT INTO {schema}.outbox_deltas
SELECT t.* FROM {schema}.outbox_traits($1) AS t
UNION ALL
SELECT queue, event_type, 'enqueued', '', '', '', '', count(*) FROM {schema}.outbox WHERE seq = ANY ($1) GROUP BY 1, 2

-- name: adopt_groups
INSERT INTO {schema}.outbox_groups AS g
SELECT u.fingerprint, u.error_type, u.title, timestamptz 'epoch' + u.first * interval '1 microsecond',
       timestamptz 'epoch' + u.last * interval '1 microsecond'
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
       AS u (fingerprint, error_type, title, first, last) ORDER BY 1
ON CONFLICT (fingerprint) DO UPDATE SET first_seen_at = least(g.first_seen_at, excluded.first_seen_at),
    last_seen_at = greatest(g.last_seen_at, excluded.last_seen_at)

-- name: handled_keys
SELECT handler_name, idempotency_key, {schema}.outbox_us(handled_at) AS at_us FROM {schema}.event_handled
 WHERE (handler_name, idempotency_key) > ($1, $2) ORDER BY handler_name, idempotency_key LIMIT $3

-- name: adopt_handled
INSERT INTO {schema}.event_handled (handler_name, idempotency_key, handled_at)
SELECT u.handler, u.key, timestamptz 'epoch' + u.at * interval '1 microsecond'
  FROM {schema}.outbox_durable(), unnest($1::text[], $2::text[], $3::bigint[]) AS u (handler, key, at) ORDER BY 1, 2
ON CONFLICT DO NOTHING RETURNING 1

-- name: same_key
SELECT seq, id::text AS id FROM {schema}.outbox WHERE queue = $1 AND event_type = $2 AND idempotency_key = $3

-- name: free_key
UPDATE {schema}.outbox SET idempotency_key = NULL WHERE seq = $1

-- name: newer_error
UPDATE {schema}.outbox SET last_error = $2, odd = odd OR $3 WHERE seq = $1

-- name: newer_failure
SELECT {schema}.outbox_newer_failure($1, $2, $3)

-- name: follow_failure
SELECT {schema}.outbox_follow_failure($1, $2, $3)

-- name: renew
UPDATE {schema}.outbox SET policy = $2, extras = $3 WHERE seq = $1

-- name: fail_again
SELECT {schema}.outbox_fail_again($1, $2, $3, $4, $5, $6)

-- name: take
SELECT * FROM {schema}.outbox_take_letter($1, $2, $3, $4, $5, $6)

-- name: taken
SELECT ({schema}.outbox_claimed_of(o)).* FROM {schema}.outbox AS o WHERE o.seq = $1 AND o.token = $2

-- name: stranded
SELECT id::text FROM {schema}.outbox_stranded($1, $2) AS id

-- name: dependents
SELECT a.id::text AS awaited, b.id::text AS waiting FROM unnest($1::uuid[]) AS given (id)
 CROSS JOIN LATERAL (SELECT o.id, o.seq FROM {schema}.outbox AS o WHERE o.id = given.id LIMIT 1) AS a
  JOIN {schema}.outbox_waits AS w ON w.on_seq = a.seq JOIN {schema}.outbox AS b ON b.seq = w.seq
 WHERE b.status IN ('pending', 'failed') ORDER BY a.seq, b.seq

-- name: awaited_by
SELECT seq, waiting::text AS waiting FROM {schema}.outbox_awaited($1)
