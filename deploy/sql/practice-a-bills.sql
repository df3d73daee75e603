-- The outbox of bills, for configs/bills.yaml. MySQL and MariaDB alike.
-- Times are UTC. Load it into the schema that holds the bills.
CREATE TABLE ss_bill_outbox (
  id            BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  bill_id       BIGINT UNSIGNED NOT NULL,
  event_type    VARCHAR(64)     NOT NULL,
  payload       JSON            NOT NULL,
  status        VARCHAR(16)     NOT NULL DEFAULT 'PENDING' COMMENT 'PENDING, PROCESSING, SENT, FAILED, ABANDONED',
  retry_count   INT             NOT NULL DEFAULT 0,
  next_retry_at DATETIME(3)     NULL,
  locked_by     VARCHAR(64)     NULL,
  locked_until  DATETIME(3)     NULL,
  created_at    DATETIME(3)     NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  PRIMARY KEY (id),
  KEY by_status (status, next_retry_at),
  KEY by_bill (bill_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;
