-- Orders and payments
-- Which orders are paid, which are overdue, and what is sold where?

CREATE STREAMING TABLE orders (
  id INT, customer INT, amount INT, at TIMESTAMP,
  channel STRING NOT NULL CHECK (channel IN ('web', 'app', 'shop'))
) TBLPROPERTIES (
  'watermark' = '5 seconds', 'rate' = '1000 per second'
);

CREATE STREAMING TABLE payments (
  order_id INT, amount INT, at TIMESTAMP
) TBLPROPERTIES (
  'watermark' = '5 seconds', 'rate' = '1000 per second'
);

-- Overdue: no payment within an hour.
SELECT o.id, o.amount FROM orders o
WHERE NOT EXISTS (
  SELECT 1 FROM payments p
  WHERE p.order_id = o.id
    AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR
);

-- Paid, whenever that was: every order waits for ever.
SELECT o.id, p.at AS paid_at
FROM orders o JOIN payments p ON p.order_id = o.id;

-- Revenue by channel: three channels, three groups.
SELECT channel, COUNT(*) AS orders, SUM(amount) AS revenue
FROM orders GROUP BY channel;

-- Revenue by customer: how many customers will there be?
SELECT customer, SUM(amount) AS revenue
FROM orders GROUP BY customer;
