-- For every category, the average of the winning prices of its auctions.
-- expect: unbounded
-- because the best price of every open auction is needed, and when auctions close is up to the data
CREATE STREAMING TABLE auctions (
  id BIGINT, item STRING, details STRING, first_price BIGINT, reserve BIGINT,
  category INT, seller BIGINT, opened_at TIMESTAMP, closes_at TIMESTAMP
) USING parquet OPTIONS (path 'data/auctions', maxFilesPerTrigger '1')
  TBLPROPERTIES ('time' = 'opened_at', 'watermark' = '4 seconds');
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT won.category, AVG(won.best) AS average_price
FROM (
  SELECT a.category, a.id, MAX(b.price) AS best
  FROM bids b JOIN auctions a ON a.id = b.auction
  WHERE b.made_at BETWEEN a.opened_at AND a.closes_at
  GROUP BY a.category, a.id
) won
GROUP BY won.category;
