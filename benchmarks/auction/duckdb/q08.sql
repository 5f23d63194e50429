SELECT DISTINCT p.id, p.name, time_bucket(INTERVAL 10 SECONDS, p.joined_at) AS since
FROM people p SEMI JOIN auctions a
  ON a.seller = p.id
 AND time_bucket(INTERVAL 10 SECONDS, a.opened_at) = time_bucket(INTERVAL 10 SECONDS, p.joined_at);
