-- An outbox table to begin with, as relay/outbox writes it and
-- configs/towpath.minimal.yaml reads it. MySQL and MariaDB alike. Times are
-- UTC. Load it into the schema that holds the business data: both are written
-- in one transaction.
CREATE TABLE outbox_event (
  event_id        CHAR(36)     NOT NULL COMMENT 'the message id: UUID version 7, so that rows go in at the end of the index',
  aggregate_id    VARCHAR(64)  NOT NULL COMMENT 'messages of one value stay in order',
  event_type      VARCHAR(64)  NOT NULL,
  payload         JSON         NOT NULL,
  status          VARCHAR(16)  NOT NULL DEFAULT 'PENDING' COMMENT 'PENDING, SENT, FAILED, ABANDONED',
  attempts        INT          NOT NULL DEFAULT 0,
  next_attempt_at DATETIME(3)  NULL,
  last_error      VARCHAR(500) NULL,
  sent_at         DATETIME(3)  NULL,
  created_at      DATETIME(3)  NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (event_id),
  KEY by_status (status, sent_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
