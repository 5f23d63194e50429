SELECT auction, bidder, price, made_at,
  strftime(made_at, '%Y-%m-%d') AS day, strftime(made_at, '%H:%M') AS minute
FROM bids;
