-- What a letter does when one that it waits for is dead: 0 wait on, 1 run, 2 fail.

ALTER TABLE waits ADD COLUMN failure INTEGER NOT NULL DEFAULT 0;
CREATE INDEX waits_failure ON waits (failure) WHERE failure > 0;  -- few letters say anything but wait
