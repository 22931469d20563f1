-- Plans, as JSON, and which of them are open.

-- name: keep_plan
INSERT OR REPLACE INTO plans VALUES (?, ?)

-- name: open_plan
-- Plans that are running or paused are few: workers find them here without reading all that ever were.
INSERT OR IGNORE INTO shared_state VALUES ('open plan', ?, x'')

-- name: close_plan
DELETE FROM shared_state WHERE room = 'open plan' AND name = ?

-- name: plan
SELECT value FROM plans WHERE id = ?

-- name: plans
SELECT value FROM plans

-- name: open_plans
SELECT value FROM plans WHERE id IN (SELECT name FROM shared_state WHERE room = 'open plan')
