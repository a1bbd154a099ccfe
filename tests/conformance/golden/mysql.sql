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

XA START 'pakka.2e0a6671fef1a30e5edf.4.1','0.0.d6e35098629a.refunds.out';
SELECT fence FROM {place}.pakka_fence LOCK IN SHARE MODE;
INSERT INTO {place}.refund VALUES ('RFD-4-0-0', 'chai corner 0', 0), ('RFD-4-0-1', 'chai corner 1', 100), ('RFD-4-0-2', 'chai corner 2', 200), ('RFD-4-0-3', 'chai corner 0', 300), ('RFD-4-0-4', 'chai corner 1', 400);
INSERT INTO {place}.pakka_ledger VALUES ('refunds', 'out', 4, 0, 1, 0, 5, '00000002816dc62e', DEFAULT, NULL);
XA END 'pakka.2e0a6671fef1a30e5edf.4.1','0.0.d6e35098629a.refunds.out';
XA PREPARE 'pakka.2e0a6671fef1a30e5edf.4.1','0.0.d6e35098629a.refunds.out';

XA START 'pakka.2e0a6671fef1a30e5edf.4.1','1.0.d6e35098629a.refunds.out';
SELECT fence FROM {place}.pakka_fence LOCK IN SHARE MODE;
INSERT INTO {place}.pakka_ledger VALUES ('refunds', 'out', 4, 1, 1, 0, 0, '0000000000000000', DEFAULT, NULL);
XA END 'pakka.2e0a6671fef1a30e5edf.4.1','1.0.d6e35098629a.refunds.out';
XA PREPARE 'pakka.2e0a6671fef1a30e5edf.4.1','1.0.d6e35098629a.refunds.out';

XA START 'pakka.2e0a6671fef1a30e5edf.4.1','2.0.d6e35098629a.refunds.out';
SELECT fence FROM {place}.pakka_fence LOCK IN SHARE MODE;
INSERT INTO {place}.refund VALUES ('RFD-4-2-0', 'chai corner 0', 2), ('RFD-4-2-1', 'chai corner 1', 102), ('RFD-4-2-2', 'chai corner 2', 202);
INSERT INTO {place}.pakka_ledger VALUES ('refunds', 'out', 4, 2, 1, 0, 3, '00000001cee05a4a', DEFAULT, NULL);
XA END 'pakka.2e0a6671fef1a30e5edf.4.1','2.0.d6e35098629a.refunds.out';
XA PREPARE 'pakka.2e0a6671fef1a30e5edf.4.1','2.0.d6e35098629a.refunds.out';
