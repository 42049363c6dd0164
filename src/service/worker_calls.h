#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/buffer.h"
#include "net/http_client.h"
#include "net/runtime.h"
#include "service/frame_buffers.h"
#include "service/rows_place.h"
#include "service/worker_tls.h"

namespace millrace {

// Requests and answers carry these headers beside those of HTTP.
inline constexpr std::string_view kVersionHeader = "Millrace-Service";  // kServiceVersion, in every request and answer
inline constexpr std::string_view kStatusHeader = "Millrace-Status";    // of an error of the worker's loader: its code
inline constexpr std::string_view kJobHeader = "Millrace-Job";          // whose streams share a worker's memory
inline constexpr std::string_view kMemoryHeader = "Millrace-Memory";    // bytes that each stream takes of it
inline constexpr std::string_view kPlainBytesHeader = "Millrace-Plain-Bytes";  // of a batch that is compressed
inline constexpr std::string_view kFactsHeader = "Millrace-Facts";    // of a batch that is not: bytes before its arrays
inline constexpr std::string_view kWaitedHeader = "Millrace-Waited";  // of a batch: its request, at the worker, in µs

/// A trainer with a token asks here for the worker's proof (token_proof.h).
inline constexpr std::string_view kChallengePath = "/millrace/challenge";
inline constexpr std::string_view kWorkerPurpose = "worker";  // of the proofs
/// Returns the text that the proof of a request to a worker is made of.
std::string ProvedText(const HttpRequestHead& head);

/// Says who asks.
struct TrainerFacts {
  std::string token;             // that workers know, too; "" for none
  std::optional<WorkerTls> tls;  // absent for workers without
  std::string job;               // printable
  uint64_t stream_memory = 0;
  size_t free_buffers = SIZE_MAX;  // that are kept for batches to come, at most; else as many as were in use at a time
};

/// Holds the outcome of a request to a worker.
struct WorkerAnswer {
  std::string lost;                // not "": there is no answer, and why
  bool is_refused = false;         // for there is no TLS between the two: another try will not change that
  int status = 0;                  // HTTP's
  bool is_worker = false;          // a worker has answered, of whichever version
  std::optional<int> code;         // of an error of the worker's loader (absl::StatusCode)
  std::string text;                // of an answer without a batch
  std::shared_ptr<Buffer> memory;  // of one with a batch, which is in it:
  ByteSpan bytes;
  uint64_t plain_bytes = 0;             // of one with a compressed batch: those that it decompresses to
  std::shared_ptr<RowsPlace> rows;      // where the rows of the batch were received; null: all of it is in `bytes`
  uint32_t crc = 0;                     // CRC32C of all after the head of the frame
  std::chrono::microseconds waited{0};  // of one with a batch: how long the request waited for it at the worker
  bool on_new_connection = false;       // the request has opened the connection
  std::chrono::steady_clock::time_point asked{};  // when the request went out, on a connection that was open
  std::chrono::steady_clock::time_point begun{};  // when the answer's head had come
};

/// Takes HOST:PORT apart. Returns InvalidArgument if the text is something else.
absl::StatusOr<HttpEndpoint> ParseWorkerAddress(std::string_view text);

/// This is a request in flight.
class WorkerCall {
 public:
  virtual ~WorkerCall() = default;
  /// The answer will be that the worker is lost, soon. From any thread.
  virtual void Cancel() = 0;
  /// Returns when the last byte of the answer came; before that, when it was begun. From any thread.
  virtual std::chrono::steady_clock::time_point heard() const = 0;
};

class WorkerKeys;

/// Sends requests to workers, on the loops of the runtime. A worker that says nothing for two seconds is lost: a good
/// one says "not yet" long before. The token is never sent: a worker first proves that it knows the token, and gets no
/// request before. Thread-safe. The destructor cancels all calls and waits for their answers.
class WorkerCalls {
 public:
  using OnAnswer = std::function<void(WorkerAnswer answer)>;
  /// Finds the place of the rows of a batch that is about to come; returns null if it is not known. Called on a loop.
  using FindRows = std::function<std::shared_ptr<RowsPlace>()>;

  WorkerCalls(Runtime& runtime, const TrainerFacts& trainer);
  ~WorkerCalls();

  /// `done` is called once, on a loop. Answers of status 200 with more than `limit` bytes are refused.
  std::shared_ptr<WorkerCall> Start(const HttpEndpoint& worker, std::string method, std::string target,
                                    std::string body, uint64_t limit, OnAnswer done, FindRows find_rows = nullptr);
  /// Does the same, and waits for the answer.
  WorkerAnswer Ask(const HttpEndpoint& worker, std::string method, std::string target);

 private:
  Runtime& runtime_;
  const TrainerFacts trainer_;
  FrameBuffers buffers_;
  const std::unique_ptr<WorkerKeys> keys_;
  HttpClient client_;
};

}  // namespace millrace
