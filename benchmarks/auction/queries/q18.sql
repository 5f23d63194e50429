-- The last bid of every bidder for every auction.
-- expect: unbounded
-- because the last bid of every pair of a bidder and an auction stays in the answer until a later one comes
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT auction, bidder, price, channel, url, made_at
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY made_at DESC) AS place FROM bids
) ranked
WHERE place = 1;
