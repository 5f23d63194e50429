-- Auctions
-- What is the highest bid: ever, by auction, in ten minutes?

CREATE STREAMING TABLE auctions (
  id INT, category INT, reserve INT, at TIMESTAMP
) TBLPROPERTIES (
  'watermark' = '10 seconds', 'rate' = '50 per second'
);

CREATE STREAMING TABLE bids (
  auction INT, bidder INT, price INT, at TIMESTAMP
) TBLPROPERTIES (
  'watermark' = '10 seconds', 'rate' = '1000 per second'
);

-- The highest bid ever is a single number ...
SELECT MAX(price) AS highest FROM bids;

-- ... that of each auction is a number for every auction to come.
SELECT auction, MAX(price) AS highest FROM bids GROUP BY auction;

-- The three auctions with the highest bids in every ten minutes.
SELECT since, auction, price FROM (
  SELECT window.start AS since, auction, MAX(price) AS price
  FROM bids GROUP BY window(at, '10 minutes'), auction
)
QUALIFY ROW_NUMBER() OVER (PARTITION BY since ORDER BY price DESC) <= 3;

-- Bids above the reserve, on the day for which an auction is open.
SELECT a.id, b.bidder, b.price
FROM auctions a JOIN bids b
  ON b.auction = a.id
  AND b.at BETWEEN a.at AND a.at + INTERVAL 1 DAY
WHERE b.price >= a.reserve;

-- Has a bid ever topped the reserve of an earlier auction of
-- category 7? The smallest reserve is enough to know.
SELECT DISTINCT a.category
FROM auctions a JOIN bids b ON b.price > a.reserve AND b.at > a.at
WHERE a.category = 7;
