-- Boots of machines, and the mark by which a file knows its own WAL.

-- name: newest
SELECT number, boot_id FROM boots ORDER BY number DESC LIMIT 1

-- name: forget
DELETE FROM boots WHERE boot_id = ?

-- name: keep
INSERT INTO boots VALUES (?, ?)

-- name: mark
SELECT mark FROM meta

-- name: keep_mark
UPDATE meta SET mark = ?
