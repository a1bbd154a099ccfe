CREATE TABLE {place}.`refund` (
  `refund_id` longtext DEFAULT NULL,
  `merchant` longtext DEFAULT NULL,
  `amount_paise` bigint(20) DEFAULT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE {place}.`pakka_fence` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `sink` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `fence` bigint(20) NOT NULL,
  PRIMARY KEY (`pipeline`,`sink`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
CREATE TABLE {place}.`pakka_ledger` (
  `pipeline` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `sink` varchar(63) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `epoch` bigint(20) NOT NULL,
  `slot` int(11) NOT NULL,
  `fence` bigint(20) NOT NULL,
  `attempt` bigint(20) NOT NULL,
  `rows` bigint(20) NOT NULL,
  `checksum` varchar(64) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
  `prepared_at` datetime(6) NOT NULL DEFAULT current_timestamp(6),
  `entry` longtext DEFAULT NULL,
  PRIMARY KEY (`pipeline`,`sink`,`epoch`,`slot`,`fence`,`attempt`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
INSERT INTO {place}.pakka_fence VALUES ('refunds', 'out', 1);
