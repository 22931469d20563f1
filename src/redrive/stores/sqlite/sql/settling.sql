-- Settling. A worker that lost its claim changes nothing: the fence ends every statement that moves a letter.

-- name: deliver
UPDATE letters SET status = 'delivered', token = ?, updated_us = ?, why = '{succeeded}' WHERE seq IN carray(?)

-- name: written
SELECT seq FROM letters WHERE seq IN carray(?) AND token = ?

-- name: fence
AND token = ? AND status = 'in_flight'
