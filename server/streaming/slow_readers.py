"""What slow readers cost, counted for Prometheus. A reader that keeps up touches none of this."""

from prometheus_client import Counter, Gauge

SEND_TIMEOUT = "send_timeout"  # one write waited too long
BACKLOG = "backlog"  # merged deltas passed their bound

CUTS = Counter("streamgauge_stream_cuts", "Streams that ended because their reader was too slow.", ["reason"])
MERGED_DELTAS = Counter("streamgauge_merged_deltas", "Deltas that were kept to leave as one event with others.")
PARKED = Gauge("streamgauge_parked_streams", "Streams that wait for their reader.")

for _reason in (SEND_TIMEOUT, BACKLOG):
    CUTS.labels(_reason)  # there from the start, as 0
