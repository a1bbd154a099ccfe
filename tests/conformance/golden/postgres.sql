CREATE TABLE {place}.refund (refund_id text, merchant text, amount_paise bigint);
CREATE TABLE {place}.pakka_fence (pipeline text NOT NULL, sink text NOT NULL, fence bigint NOT NULL, PRIMARY KEY (pipeline, sink));
CREATE TABLE {place}.pakka_ledger (pipeline text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL, slot integer NOT NULL, fence bigint NOT NULL, attempt bigint NOT NULL, rows bigint NOT NULL, checksum text NOT NULL, prepared_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL, entry text, PRIMARY KEY (pipeline, sink, epoch, slot, fence, attempt));
INSERT INTO {place}.pakka_fence VALUES ('refunds', 'out', 1);

BEGIN;
SELECT fence FROM {place}.pakka_fence FOR SHARE;
INSERT INTO {place}.refund VALUES ('RFD-4-0-0', 'chai corner 0', 0), ('RFD-4-0-1', 'chai corner 1', 100), ('RFD-4-0-2', 'chai corner 2', 200), ('RFD-4-0-3', 'chai corner 0', 300), ('RFD-4-0-4', 'chai corner 1', 400);
INSERT INTO {place}.pakka_ledger VALUES ('refunds', 'out', 4, 0, 1, 0, 5, '00000002816dc62e', DEFAULT, NULL);
PREPARE TRANSACTION 'pakka.refunds.out.4.1.0.0/16384.16385';

BEGIN;
SELECT fence FROM {place}.pakka_fence FOR SHARE;
INSERT INTO {place}.pakka_ledger VALUES ('refunds', 'out', 4, 1, 1, 0, 0, '0000000000000000', DEFAULT, NULL);
PREPARE TRANSACTION 'pakka.refunds.out.4.1.1.0/16384.16385';

BEGIN;
SELECT fence FROM {place}.pakka_fence FOR SHARE;
INSERT INTO {place}.refund VALUES ('RFD-4-2-0', 'chai corner 0', 2), ('RFD-4-2-1', 'chai corner 1', 102), ('RFD-4-2-2', 'chai corner 2', 202);
INSERT INTO {place}.pakka_ledger VALUES ('refunds', 'out', 4, 2, 1, 0, 3, '00000001cee05a4a', DEFAULT, NULL);
PREPARE TRANSACTION 'pakka.refunds.out.4.1.2.0/16384.16385';
