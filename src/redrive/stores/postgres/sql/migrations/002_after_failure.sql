-- What a letter does when one that it waits for is dead: 0 wait on, 1 run, 2 fail.

ALTER TABLE {schema}.outbox_waits ADD COLUMN failure smallint NOT NULL DEFAULT 0;
CREATE INDEX outbox_waits_failure ON {schema}.outbox_waits (on_seq) WHERE failure > 0;  -- few letters say anything but wait
