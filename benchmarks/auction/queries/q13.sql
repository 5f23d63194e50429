-- Every bid, with the shelf that its auction stands on.
-- expect: bounded
-- because shelves is a relation: each bid is answered by itself
CREATE STREAMING TABLE bids (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, note STRING, made_at TIMESTAMP
) USING parquet OPTIONS (path 'data/bids', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');
CREATE TABLE shelves (number INT, label STRING) USING parquet OPTIONS (path 'data/shelves');

SELECT b.auction, b.bidder, b.price, b.made_at, s.label
FROM bids b JOIN shelves s ON b.auction % 1000 = s.number;
