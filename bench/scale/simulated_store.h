#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "devstore/latency.h"
#include "event_queue.h"
#include "s3/object.h"
#include "s3/pace.h"
#include "s3/retry.h"

/// The far end of a simulated request, and the client's decisions about it.

namespace millrace {

/// Represents the behavior of S3. The modules of devstore decide delays and limits, so that a server with the same
/// numbers treats the same requests in the same way.
struct StoreModel {
  LatencyModel latency;
  double refusal_ms = 0;              // from a request beyond the limit to its 503
  uint64_t rate_per_prefix = 5500;    // requests a second; 0: no limit
  uint64_t connection_bandwidth = 0;  // bytes a second of each; 0: no limit
  uint64_t seed = 0;
};

class SimulatedStore {
 public:
  explicit SimulatedStore(const StoreModel& model) : model_(model), rates_(model.rate_per_prefix) {}

  struct Answer {
    bool refused = false;            // 503
    EventQueue::Nanos head = 0;      // when its first byte comes
    EventQueue::Nanos body_for = 0;  // how long its body takes at least
  };
  /// `subject` is "bucket/key"; `part` tells requests for one object apart ("bytes=0-99").
  Answer Ask(const char* method, const std::string& subject, const std::string& part, uint64_t body_bytes,
             const EventQueue& events);

  struct Tally {
    uint64_t requests = 0;  // served
    uint64_t reads = 0;     // of them GETs
    uint64_t refused = 0;
    uint64_t bytes = 0;             // of bodies that were served
    uint64_t most_in_a_second = 0;  // served and refused
  };
  /// Returns the tally of each prefix, which is the bucket and the key up to its last '/'.
  const std::map<std::string, Tally, std::less<>>& prefixes() const { return prefixes_; }

 private:
  struct Second {
    int64_t number = -1;
    uint64_t requests = 0;
  };
  Tally& Count(const std::string& subject, int64_t second);

  const StoreModel model_;
  PrefixRates rates_;
  AttemptCounter attempts_;
  std::map<std::string, Tally, std::less<>> prefixes_;
  std::map<std::string, Second, std::less<>> seconds_;
};

/// The network card of a host, which its processes share: what it takes in comes one after the other.
class SimulatedNetwork {
 public:
  explicit SimulatedNetwork(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: no limit

  /// When `bytes` that begin to come now, and take `least` by themselves, are there. OnReceived() is called then.
  EventQueue::Nanos Receive(uint64_t bytes, EventQueue::Nanos now, EventQueue::Nanos least);
  void OnReceived(uint64_t bytes) { bytes_ += bytes; }
  /// That have come.
  uint64_t bytes() const { return bytes_; }

 private:
  const double bytes_per_second_;
  EventQueue::Nanos free_ = 0;
  uint64_t bytes_ = 0;
};

/// Represents the S3 client of one process: when its requests go out, and when they are made again. Paces and back-off
/// are those of `s3`; second requests for late first bytes, and connections, are left out.
class SimulatedClient {
 public:
  /// The attempts of one request that fails and is made again. The real client gives up then, unless others succeed.
  static constexpr int kUsualAttempts = 10;

  /// All of these outlive its requests. Clients of different `id` do not wait alike after a refusal.
  SimulatedClient(EventQueue* events, SimulatedStore* store, SimulatedNetwork* network, uint64_t id)
      : events_(events), store_(store), network_(network), id_(id) {}

  struct Request {
    const char* method = "GET";
    std::string bucket;
    std::string key;
    std::string part;
    uint64_t bytes = 0;                   // of the answer
    RequestProgress* progress = nullptr;  // may be null
    std::function<void()> before;         // is called before `progress` changes; may be empty
    std::function<void()> done;
  };
  void Send(Request request);
  /// Forgets all requests: none of their functions is called any more.
  void Stop() { *alive_ = false; }

  uint64_t sent() const { return sent_; }
  uint64_t refused() const { return refused_; }
  int most_attempts() const { return most_attempts_; }

 private:
  struct Flight {
    Request request;
    int failures = 0;
    uint64_t attempts = 0;
    uint64_t number = 0;
    absl::Time sent;
  };
  using SharedFlight = std::shared_ptr<Flight>;
  void Later(EventQueue::Nanos when, void (SimulatedClient::*next)(const SharedFlight&), SharedFlight flight);
  void Enter(const SharedFlight& flight, RequestPhase phase);
  void TakeTurn(const SharedFlight& flight);
  void OnRefused(const SharedFlight& flight);
  void OnBody(const SharedFlight& flight);

  EventQueue* const events_;
  SimulatedStore* const store_;
  SimulatedNetwork* const network_;
  const uint64_t id_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Pacer pacer_;
  RetryBudget budget_;
  uint64_t numbered_ = 0;
  uint64_t sent_ = 0;
  uint64_t refused_ = 0;
  int most_attempts_ = 0;
};

}  // namespace millrace
