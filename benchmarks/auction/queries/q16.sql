-- For every channel and day: how many bids, bidders and auctions, and the last minute with a bid.
-- expect: bounded
-- because only the channels, bidders and auctions of the days that are open are kept
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT channel, date_format(made_at, 'yyyy-MM-dd') AS day,
  MAX(date_format(made_at, 'HH:mm')) AS last_minute,
  COUNT(*) AS bids,
  COUNT(*) FILTER (WHERE price < 10000) AS low_bids,
  COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bids,
  COUNT(*) FILTER (WHERE price >= 1000000) AS high_bids,
  COUNT(DISTINCT bidder) AS bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_bidders,
  COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS high_bidders,
  COUNT(DISTINCT auction) AS auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS low_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle_auctions,
  COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS high_auctions
FROM bids
GROUP BY channel, date_format(made_at, 'yyyy-MM-dd');
