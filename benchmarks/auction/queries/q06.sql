-- For every seller, the average winning price of the last ten auctions.
-- expect: unbounded
-- because the best bid of every open auction, and ten prices for every seller, are needed
CREATE STREAMING TABLE auctions (
  id BIGINT, item STRING, details STRING, first_price BIGINT, reserve BIGINT,
  category INT, seller BIGINT, opened_at TIMESTAMP, closes_at TIMESTAMP
) USING parquet OPTIONS (path 'data/auctions', maxFilesPerTrigger '1')
  TBLPROPERTIES ('time' = 'opened_at', 'watermark' = '4 seconds');
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT seller,
  AVG(price) OVER (PARTITION BY seller ORDER BY made_at ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS average
FROM (
  SELECT a.seller, b.price, b.made_at,
    ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.made_at) AS place
  FROM auctions a JOIN bids b ON b.auction = a.id
  WHERE b.made_at >= a.opened_at AND b.made_at <= a.closes_at
) ranked
WHERE place = 1;
