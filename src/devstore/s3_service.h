#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "devstore/auth.h"
#include "devstore/devstore.h"
#include "devstore/faults.h"
#include "devstore/latency.h"
#include "devstore/operations.h"
#include "net/http_server.h"

namespace millrace {

struct S3Call;

/// Answers HTTP requests as S3 does: checks the signature, finds the operation, injects the faults and delays of the
/// plan, and runs the operation; long ones on `workers`. Thread-safe.
class S3Service final : public HttpHandler {
 public:
  /// All must outlive it. `rules` are those of `options`.
  S3Service(Storage& storage, ThreadPool& workers, const DevstoreOptions& options, std::vector<FaultRule> rules);

  std::unique_ptr<HttpExchange> OnRequest(HttpRequestHead head, const HttpRequestFacts& facts,
                                          HttpResponder responder) override;

  std::map<std::pair<std::string, int>, uint64_t> counters() const;
  std::vector<uint64_t> fault_firings() const { return faults_.firings(); }

 private:
  friend class DevstoreExchange;

  absl::Status Admit(S3Call& call, HttpRequestHead head);
  absl::Status InjectBefore(S3Call& call);
  void Perform(const std::shared_ptr<S3Call>& call);
  void Finish(S3Call& call, Reply result);
  HttpReply ErrorReply(const S3Call& call, const absl::Status& error) const;
  void Account(const S3Call& call, const HttpReply& reply);

  ThreadPool& workers_;
  const AuthSettings auth_;
  const LatencyModel latency_;
  const uint64_t bandwidth_;
  const uint64_t seed_;
  const absl::Duration clock_offset_;
  const std::function<void(std::string_view)> access_log_;
  ETagOverrides etags_;
  OperationContext context_;
  FaultPlan faults_;
  PrefixRates rates_;
  AttemptCounter attempts_;
  std::atomic<uint64_t> next_id_;

  mutable std::mutex mutex_;  // of the counters and the log
  std::map<std::pair<std::string, int>, uint64_t> counters_;
};

}  // namespace millrace
