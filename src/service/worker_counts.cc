#include "service/worker_counts.h"

#include "net/metrics_text.h"

namespace millrace {

void CollectWorker(const WorkerCounts& counts, MetricsText* text) {
  text->Gauge("millrace_worker_sessions", "Streams that trainers have open now.", {}, static_cast<double>(counts.open));
  text->Counter("millrace_worker_sessions_total", "Streams that were opened.", {}, static_cast<double>(counts.opened));
  text->Counter("millrace_worker_refused_total", "Streams that were refused: too many, or too little memory.", {},
                static_cast<double>(counts.refused));
  text->Counter("millrace_worker_batches_sent_total", "Parts of batches that were sent.", {},
                static_cast<double>(counts.batches));
  text->Counter("millrace_worker_rows_sent_total", "Rows in these, padding included.", {},
                static_cast<double>(counts.rows));
  text->Counter("millrace_worker_sent_bytes_total", "Bytes of these.", {}, static_cast<double>(counts.bytes));
  constexpr double kMillisecondsOfOne = 1000;
  text->Counter("millrace_worker_stream_seconds_total", "Time that streams were open, summed over them.", {},
                static_cast<double>(counts.open_ms) / kMillisecondsOfOne);
  text->Counter("millrace_worker_awaited_seconds_total",
                "Time that streams were open while a trainer waited for a batch that was not ready.", {},
                static_cast<double>(counts.awaited_ms) / kMillisecondsOfOne);
  CollectLoaders(counts.loaders, text);
}

}  // namespace millrace
