"""Numbers with their n and 95 % intervals, and differences of two runs; rows may come in clusters."""

from __future__ import annotations

from tirjudge.statistics.clusters import (
    LEAST_CLUSTERS,
    Z,
    cluster_codes,
    cluster_digest,
    clustered_variance,
    effective_clusters,
    in_clusters,
    left_out,
    prompt_cluster,
    quantile,
)
from tirjudge.statistics.differences import (
    detectable_difference,
    difference_interval,
    fault_of,
    unpaired_interval,
)
from tirjudge.statistics.estimators import (
    LEAST_OF_CLASS,
    LEAST_ROWS,
    Credits,
    Estimator,
    Fitted,
    Mean,
    OfTable,
    SectionMean,
    Statistic,
    normal_interval,
)
from tirjudge.statistics.proportions import Proportion, paired_difference, wilson_interval

__all__ = [
    "LEAST_CLUSTERS",
    "LEAST_OF_CLASS",
    "LEAST_ROWS",
    "Credits",
    "Estimator",
    "Fitted",
    "Mean",
    "OfTable",
    "Proportion",
    "SectionMean",
    "Statistic",
    "Z",
    "cluster_codes",
    "cluster_digest",
    "clustered_variance",
    "detectable_difference",
    "difference_interval",
    "effective_clusters",
    "fault_of",
    "in_clusters",
    "left_out",
    "normal_interval",
    "paired_difference",
    "prompt_cluster",
    "quantile",
    "unpaired_interval",
    "wilson_interval",
]
