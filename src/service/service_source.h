#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/loader.h"
#include "service/row_functions.h"
#include "service/worker_tls.h"

namespace millrace {

struct ServiceOptions {
  static constexpr uint64_t kMaxStreams = 64;

  std::vector<std::string> workers;  // HOST:PORT each, or where some are to be found (worker_places.h)
  std::string token;                 // of all of them; "" = they ask for none
  std::optional<WorkerTls> tls;      // of all of them; absent: they have none
  uint64_t local_streams = 0;        // streams that this process decodes beside them
  bool compress = false;             // workers compress batches by zstd where that makes them clearly smaller: tokens,
                                     // hardly images
  bool local_follows = false;        // instead, this process decodes all streams at first; while the program waits for
                                     // it, workers take one after the other, and give them back if they are slower
  uint64_t streams = 0;              // how many to divide a batch into; 0 = as many as there are workers and local
                                     // streams, rounded up to a power of two; 16 at least, where workers may come
  // and go, or local streams follow. Fewer where the batch, the lanes or memory are not enough
  std::optional<RowFunction> function;  // that workers apply to samples: its name, URI and kind of arrays. The program
                                        // does that for rows that this process decodes
};

/// Delivers the batches that Loader::Create would deliver, byte by byte and in the same order, but decoded by workers.
/// Each batch is divided into streams, and each stream is read from a worker, or decoded in this process. If a worker
/// fails, its streams continue on another worker. If there is no other worker, they continue in this process, which
/// therefore must be able to read the data, too. Bytes of a batch are in memory of options.memory_bytes, as those of a
/// Loader, which also bounds what a local stream takes.
///
/// With a function, batches have one more entry, kFunctionEntry. It holds the workers' results for their rows, and ""
/// for rows that this process has decoded. In the other entries, only their origin (IsOriginArray) and key have a
/// meaning.
///
/// Does not wait for a worker, with one exception: if workers come and go, and there is none yet, it waits for the
/// first one for a few seconds. Returns errors of Loader::Create. Returns InvalidArgument for an invalid address, or
/// for more local streams than a batch divides into. Also returns errors of finding workers (NotFound: SageMaker has no
/// such group). Runtime, data sets and stores must outlive the result.
absl::StatusOr<std::unique_ptr<BatchSource>> FeedFromWorkers(Runtime& runtime, const Source& source,
                                                             LoaderOptions options, const ServiceOptions& service);

/// Returns the errors of FeedFromWorkers that need neither a worker, nor a place where some are to be found, nor
/// memory.
absl::Status CheckFeedFromWorkers(const Source& source, LoaderOptions options, const ServiceOptions& service);

}  // namespace millrace
