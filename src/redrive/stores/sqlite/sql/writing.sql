-- Letters written to rows. {columns}, {marks} and {sets} are made of the fields of a letter.

-- name: insert
INSERT INTO letters ({columns}) VALUES ({marks}) ON CONFLICT DO NOTHING

-- name: update
UPDATE letters SET {sets} WHERE seq = ?

-- name: update_alike
UPDATE letters SET {sets} WHERE seq IN carray(?)

-- name: update_logged
-- The rows become alike but for what the array has of each: its seq and its due time, in 20 digits each, and its log.
UPDATE letters SET {sets}, tries = substr(its.value, 41)
  FROM carray(?) AS its WHERE letters.seq = CAST(substr(its.value, 1, 20) AS INTEGER)

-- name: keep_body
INSERT INTO bodies VALUES (?, ?)

-- name: insert_plain
-- The rows hold, for each letter, what differs, then the instant three times, the token, the lease, and what all have in common.
INSERT INTO letters (seq, id, queue, kind, payload, content_type, key, idempotency_key, priority, due_us, policy,
                     generation, origin, handler, tenant, extras, queue_wide, cycle_us, created_us, updated_us, token,
                     lease, attempts, losses, cycles, payload_version, status, held, lane, why)
VALUES {rows} ON CONFLICT DO NOTHING
