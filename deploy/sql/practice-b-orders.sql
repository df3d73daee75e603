-- The outbox of orders and its history, for configs/orders.yaml. MySQL and
-- MariaDB alike. Times are UTC. Load it into the schema that holds the orders.
CREATE TABLE biz_outbox (
  id              BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  msg_id          VARCHAR(64)     NOT NULL,
  biz_type        VARCHAR(64)     NOT NULL COMMENT 'order.created, ...',
  biz_id          VARCHAR(64)     NOT NULL,
  payload         JSON            NOT NULL COMMENT 'a full snapshot',
  status          TINYINT         NOT NULL DEFAULT 0 COMMENT '0 waiting, 1 sent, 2 done, 9 failed',
  retry_count     INT             NOT NULL DEFAULT 0,
  next_retry_time DATETIME(3)     NULL,
  created_at      DATETIME(3)     NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
  sent_at         DATETIME(3)     NULL,
  PRIMARY KEY (id),
  UNIQUE KEY by_msg_id (msg_id),
  KEY by_status (status, next_retry_time)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4;

-- Sent rows move here after seven days.
CREATE TABLE biz_outbox_history LIKE biz_outbox;
