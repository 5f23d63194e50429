SELECT auction, bidder, price * 0.92 AS euros,
  if(hour(made_at) BETWEEN 9 AND 17, 'day', if(hour(made_at) BETWEEN 6 AND 20, 'between', 'night'))
    AS part_of_day,
  made_at, len(list_filter(string_split(note, ''), lambda letter: letter = 'e')) AS letters
FROM bids
WHERE price * 0.92 > 1000 AND price * 0.92 < 50000;
