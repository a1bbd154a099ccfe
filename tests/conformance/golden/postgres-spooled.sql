CREATE TABLE {place}.refund (refund_id text, merchant text, amount_paise bigint);
CREATE TABLE {place}.pakka_fence (pipeline text NOT NULL, sink text NOT NULL, fence bigint NOT NULL, PRIMARY KEY (pipeline, sink));
CREATE TABLE {place}.pakka_ledger (pipeline text NOT NULL, sink text NOT NULL, epoch bigint NOT NULL, slot integer NOT NULL, fence bigint NOT NULL, attempt bigint NOT NULL, rows bigint NOT NULL, checksum text NOT NULL, prepared_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL, entry text, PRIMARY KEY (pipeline, sink, epoch, slot, fence, attempt));
INSERT INTO {place}.pakka_fence VALUES ('refunds', 'out', 1);
