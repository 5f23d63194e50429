-- The winning bid of every auction.
-- expect: unbounded
-- because the best bid of every open auction is needed, and when auctions close is up to the data
CREATE STREAMING TABLE auctions (
  id BIGINT, item STRING, details STRING, first_price BIGINT, reserve BIGINT,
  category INT, seller BIGINT, opened_at TIMESTAMP, closes_at TIMESTAMP
) USING parquet OPTIONS (path 'data/auctions', maxFilesPerTrigger '1')
  TBLPROPERTIES ('time' = 'opened_at', 'watermark' = '4 seconds');
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT id, item, seller, category, closes_at, bidder, price, made_at
FROM (
  SELECT a.id, a.item, a.seller, a.category, a.closes_at, b.bidder, b.price, b.made_at,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.made_at) AS place
  FROM auctions a JOIN bids b ON a.id = b.auction
  WHERE b.made_at BETWEEN a.opened_at AND a.closes_at
) ranked
WHERE place = 1;
