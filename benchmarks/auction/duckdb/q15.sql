SELECT strftime(made_at, '%Y-%m-%d') AS day,
  COUNT(*) AS bids,
  COUNT(*) FILTER (price < 10000) AS low_bids,
  COUNT(*) FILTER (price BETWEEN 10000 AND 999999) AS middle_bids,
  COUNT(*) FILTER (price >= 1000000) AS high_bids,
  COUNT(DISTINCT bidder) AS bidders,
  COUNT(DISTINCT bidder) FILTER (price < 10000) AS low_bidders,
  COUNT(DISTINCT bidder) FILTER (price BETWEEN 10000 AND 999999) AS middle_bidders,
  COUNT(DISTINCT bidder) FILTER (price >= 1000000) AS high_bidders,
  COUNT(DISTINCT auction) AS auctions,
  COUNT(DISTINCT auction) FILTER (price < 10000) AS low_auctions,
  COUNT(DISTINCT auction) FILTER (price BETWEEN 10000 AND 999999) AS middle_auctions,
  COUNT(DISTINCT auction) FILTER (price >= 1000000) AS high_auctions
FROM bids
GROUP BY day;
