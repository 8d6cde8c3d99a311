records > 0 AND all_records > records AND ns >= 0.1 * all_ns
  AND CAST(ns AS DOUBLE) / nullif(records, 0)
    >= 4.0 * (all_ns - ns) / nullif(all_records - records, 0)
