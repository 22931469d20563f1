-- Letters and plans past their time, groups without letters, handled keys without letters. A cursor is where retention goes on.

-- name: cursor
SELECT retained FROM meta

-- name: page
SELECT seq, status, updated_us FROM letters WHERE seq > ? ORDER BY seq LIMIT ?

-- name: move_cursor
UPDATE meta SET retained = ?

-- name: read_cursor_of
SELECT value FROM shared_state WHERE room = 'retention' AND name = ?

-- name: write_cursor_of
INSERT OR REPLACE INTO shared_state VALUES ('retention', ?, ?)

-- name: lines
SELECT queue, kind FROM tallies WHERE status = 'enqueued'

-- name: handled_page
SELECT handler_name, idempotency_key, handled_us FROM event_handled
 WHERE (handler_name, idempotency_key) > (?, ?) ORDER BY handler_name, idempotency_key LIMIT ?

-- name: forget_handled
DELETE FROM event_handled WHERE handler_name = ? AND idempotency_key = ?

-- name: groups_page
SELECT fingerprint, last_seen_us FROM groups WHERE fingerprint > ? ORDER BY fingerprint LIMIT ?

-- name: forget_group
DELETE FROM groups WHERE fingerprint = ?1
   AND NOT EXISTS (SELECT 1 FROM letters WHERE fingerprint = ?1 AND dead = 1)
   AND NOT EXISTS (SELECT 1 FROM letters WHERE fingerprint = ?1 AND archived_from IS NOT NULL)

-- name: plans_page
SELECT id, value FROM plans WHERE id > ? ORDER BY id LIMIT ?

-- name: forget_plan
DELETE FROM plans WHERE id = ?

-- name: has_id
SELECT 1 FROM letters WHERE id = ?

-- name: has_key
SELECT 1 FROM letters WHERE queue = ? AND kind = ? AND idempotency_key = ?
