-- Letters in.

-- name: find
SELECT seq, status FROM letters WHERE id = ?

-- name: kept_id
SELECT id FROM letters WHERE id = ?
UNION ALL SELECT id FROM letters WHERE queue = ? AND kind = ? AND idempotency_key = ?

-- name: free_key
UPDATE letters SET idempotency_key = NULL WHERE seq = ?
