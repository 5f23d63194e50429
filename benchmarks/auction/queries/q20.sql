-- Every bid in category 7, with its auction.
-- expect: unbounded
-- because a bid for any auction may come at any later time
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');
CREATE STREAMING TABLE auctions (
  id BIGINT, item STRING, details STRING, first_price BIGINT, reserve BIGINT,
  category INT, seller BIGINT, opened_at TIMESTAMP, closes_at TIMESTAMP
) USING parquet OPTIONS (path 'data/auctions', maxFilesPerTrigger '1')
  TBLPROPERTIES ('time' = 'opened_at', 'watermark' = '4 seconds');

SELECT b.auction, b.bidder, b.price, b.channel, b.made_at,
  a.item, a.first_price, a.reserve, a.opened_at, a.closes_at, a.seller
FROM bids b JOIN auctions a ON b.auction = a.id
WHERE a.category = 7;
