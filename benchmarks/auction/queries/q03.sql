-- People of three states who sell in category 7, with the auctions that they open.
-- expect: unbounded
-- because everybody of these states may open an auction later
CREATE STREAMING TABLE auctions (
  id BIGINT, item STRING, details STRING, first_price BIGINT, reserve BIGINT,
  category INT, seller BIGINT, opened_at TIMESTAMP, closes_at TIMESTAMP
) USING parquet OPTIONS (path 'data/auctions', maxFilesPerTrigger '1')
  TBLPROPERTIES ('time' = 'opened_at', 'watermark' = '4 seconds');
CREATE STREAMING TABLE people (
  id BIGINT, name STRING, email STRING, city STRING, state STRING, joined_at TIMESTAMP
) USING parquet OPTIONS (path 'data/people', maxFilesPerTrigger '1')
  TBLPROPERTIES ('watermark' = '4 seconds');

SELECT p.name, p.city, p.state, a.id
FROM auctions a JOIN people p ON p.id = a.seller
WHERE a.category = 7 AND p.state IN ('ME', 'NH', 'VT');
