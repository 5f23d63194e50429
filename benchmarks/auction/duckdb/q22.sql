SELECT auction, bidder, price, channel,
  split_part(url, '/', 4) AS first_folder,
  split_part(url, '/', 5) AS second_folder,
  split_part(url, '/', 6) AS third_folder
FROM bids;
