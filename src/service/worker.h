#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cache/range_cache.h"
#include "net/http_server.h"
#include "net/runtime.h"
#include "service/row_functions.h"
#include "service/worker_counts.h"
#include "service/worker_tls.h"
#include "store/stores.h"

namespace millrace {

struct WorkerOptions {
  std::string host = "127.0.0.1";           // an address or name to listen on
  uint16_t port = 7070;                     // 0: any free one
  std::string token;                        // that trainers must have; "" = anybody who reaches the port may ask
  std::optional<WorkerTls> tls;             // trainers must have a certificate of the same authority
  std::vector<std::string> allow;           // URIs below which it reads; empty = everywhere
  std::shared_ptr<RangeCache> cache;        // that all streams read through, of whichever trainer; null: there is none
  uint64_t kept_bytes = 0;                  // of decoded batches that it keeps, since they come again (kept_batches.h)
  std::shared_ptr<RowFunctions> functions;  // of trainers, that it runs; null: none
};

/// Decodes for trainers: a server that opens a loader for each stream that it is asked for, and delivers its batches as
/// they are asked for (docs/service.md). It keeps no position: what a request says is all that it knows.
class Worker {
 public:
  static constexpr size_t kMaxSessions = 256;

  /// Returns InvalidArgument for an address that others than this machine reach without a token or TLS, or without
  /// `allow`; and the errors of HttpServer::Start. Runtime and Stores outlive the worker; the budget of the runtime
  /// bounds all sessions together.
  static absl::StatusOr<std::unique_ptr<Worker>> Start(Runtime& runtime, Stores& stores, const WorkerOptions& options);
  /// Ends all sessions and waits for what is in flight.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  uint16_t port() const;
  /// Returns the number of streams that are open now.
  size_t sessions() const;
  /// Returns what the worker has done so far. The counts live as long as the worker.
  const WorkerCounts& counts() const;

 private:
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Holds the parts of a request target that matter, "/millrace/next?session=0af3&sequence=7": its path, and its
/// parameters.
struct WorkerTarget {
  std::string path;
  std::string session;
  std::optional<uint64_t> sequence;
};
/// Returns InvalidArgument for a target that no trainer asks for.
absl::StatusOr<WorkerTarget> ParseWorkerTarget(std::string_view target);

}  // namespace millrace
