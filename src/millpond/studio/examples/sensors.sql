-- Sensors
-- 500 devices measure temperatures: when is it too hot, and where?

CREATE STREAMING TABLE readings (
  device INT NOT NULL CHECK (device BETWEEN 1 AND 500),
  celsius DOUBLE, at TIMESTAMP
) TBLPROPERTIES (
  'watermark' = '30 seconds', 'rate' = '500 per second'
);

CREATE TABLE devices (device INT, room STRING, alarm_above DOUBLE);

-- Alarms: each reading is answered by itself and forgotten.
SELECT r.device, d.room, r.celsius, r.at
FROM readings r JOIN devices d ON d.device = r.device
WHERE r.celsius > d.alarm_above;

-- Extremes since the start: a few numbers for each device.
SELECT device, MIN(celsius) AS coldest, MAX(celsius) AS hottest
FROM readings GROUP BY device;

-- The median since the start depends on all readings that were ...
SELECT device, MEDIAN(celsius) AS typical
FROM readings GROUP BY device;

-- ... that of an hour only on those of the hour.
SELECT device, window.start AS since, MEDIAN(celsius) AS typical
FROM readings GROUP BY device, window(at, '1 hour');

-- By how much did a device warm up since its last reading?
SELECT device, at,
  celsius - LAG(celsius) OVER (PARTITION BY device ORDER BY at) AS more
FROM readings;
