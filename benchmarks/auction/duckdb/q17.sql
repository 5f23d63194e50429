SELECT auction,
  strftime(made_at, '%Y-%m-%d') AS day,
  COUNT(*) AS bids,
  COUNT(*) FILTER (price < 10000) AS low_bids,
  COUNT(*) FILTER (price BETWEEN 10000 AND 999999) AS middle_bids,
  COUNT(*) FILTER (price >= 1000000) AS high_bids,
  MIN(price) AS lowest,
  MAX(price) AS highest,
  AVG(price) AS average,
  SUM(price) AS total
FROM bids
GROUP BY auction, day;
