WITH entries AS (
  SELECT level, unnest(latency_counts) AS number,
    generate_subscripts(latency_counts, 1) - 1 AS bucket
  FROM routes_hourly
), buckets AS (
  SELECT level, bucket, sum(number) AS number FROM entries GROUP BY level, bucket
), ranks AS (
  SELECT level, bucket,
    sum(number) OVER (PARTITION BY level ORDER BY bucket) AS up_to,
    sum(number) OVER (PARTITION BY level) AS total
  FROM buckets
)
SELECT level, 0.001 * power(10, min(bucket) / 10) AS p99_s
FROM ranks WHERE up_to >= 0.99 * total AND total > 0
GROUP BY level ORDER BY level
