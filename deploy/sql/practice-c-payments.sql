-- The outbox of payments, for configs/payments.yaml. MySQL and MariaDB alike.
-- Times are UTC. Load it into the schema that holds the payments.
CREATE TABLE outbox_event (
  event_id         CHAR(36)     NOT NULL,
  aggregate_id     VARCHAR(64)  NOT NULL,
  payment_id       VARCHAR(64)  NOT NULL,
  event_type       VARCHAR(64)  NOT NULL,
  payload          JSON         NOT NULL,
  payload_version  INT          NOT NULL DEFAULT 1,
  status           VARCHAR(16)  NOT NULL DEFAULT 'PENDING' COMMENT 'PENDING, PROCESSING, SENT, FAILED',
  attempts         INT          NOT NULL DEFAULT 0,
  next_attempt_at  DATETIME(3)  NULL,
  lease_owner      VARCHAR(64)  NULL,
  lease_expires_at DATETIME(3)  NULL,
  created_at       DATETIME(3)  NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (event_id),
  UNIQUE KEY one_event_for_a_transition (payment_id, event_type),
  KEY by_status (status, next_attempt_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
