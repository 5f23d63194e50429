-- Bids for some chosen auctions.
-- expect: bounded
-- because each bid is answered by itself
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT auction, price FROM bids WHERE auction % 97 = 0;
