-- Letters in.

-- name: find
SELECT seq, status FROM letters WHERE id = ?

-- name: kept_id
SELECT id FROM letters WHERE id = ?1
UNION ALL SELECT id FROM letters WHERE queue = ?2 AND kind = ?3 AND idempotency_key = ?4
UNION ALL SELECT id FROM letters WHERE ?5 = 'queue' AND queue = ?2 AND idempotency_key = ?4 AND queue_wide = 1

-- name: inserted
SELECT seq FROM letters WHERE seq BETWEEN ? AND ?

-- name: free_key
UPDATE letters SET idempotency_key = NULL WHERE seq = ?
