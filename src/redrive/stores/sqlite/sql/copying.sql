-- Letters from other stores, and to them. {all} are the columns of a whole letter.

-- name: cargo
SELECT {all}, archived_from FROM letters WHERE seq > ? ORDER BY seq LIMIT ?

-- name: awaited
SELECT waits.seq, coalesce(letters.id, '') FROM waits LEFT JOIN letters ON letters.seq = waits.on_seq
 WHERE waits.seq IN carray(?) ORDER BY 1, 2

-- name: group
SELECT fingerprint, error_type, title, first_seen_us, last_seen_us FROM groups WHERE fingerprint = ?

-- name: handled
SELECT handler_name, idempotency_key, handled_us FROM event_handled
 WHERE (handler_name, idempotency_key) > (?, ?) ORDER BY 1, 2 LIMIT ?

-- name: find
SELECT seq, status FROM letters WHERE id = ?

-- name: adopt_group
INSERT INTO groups VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET first_seen_us = min(first_seen_us, excluded.first_seen_us),
    last_seen_us = max(last_seen_us, excluded.last_seen_us)

-- name: kept_already
SELECT id, updated_us FROM letters WHERE id = ?1
UNION ALL SELECT id, updated_us FROM letters WHERE queue = ?2 AND kind = ?3 AND idempotency_key = ?4
UNION ALL SELECT id, updated_us FROM letters
           WHERE ?5 = 'queue' AND queue = ?2 AND idempotency_key = ?4 AND queue_wide = 1

-- name: adopt_handled
INSERT OR IGNORE INTO event_handled VALUES (?, ?, ?)
