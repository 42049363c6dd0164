#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "devstore/token_bucket.h"

/// Injected faults are a plan of rules, each "METHOD KEYGLOB ACTION [p=] [after=] [count=] [from=] [until=]". See
/// `millrace devstore --help` for the language.

namespace millrace {

enum class FaultKind {
  kStatus,      // status=N: an error, nothing is done
  kError,       // error=N:CODE: an error of that status and code, nothing is done
  kRetryAfter,  // retry-after=S: 503 with that header
  kLimit,       // limit=N: 503 beyond N requests a second
  kDelay,       // delay-ms=N: before the head
  kRate,        // rate=N: bytes a second of the body
  kStall,       // stall=BYTES:MS: a pause within the body
  kCut,         // cut=head[:BYTES]|BYTES: FIN
  kReset,       // reset=head[:BYTES]|BYTES: RST
  kClose,       // close: Connection: close, and FIN after the body
  kChunked,     // chunked[=BYTES]: a body in chunks, whole or cut there without their end
  kFlip,        // flip=BYTE: XOR 1
  kWrongRange,  // bytes and Content-Range of another range
  kShortRange,  // of its first half
  kWholeBody,   // whole: status 200 and the whole object
  kNewETag,     // the object's ETag changes for good
  kErrorIn200,  // an <Error> under status 200, nothing is done
  kSkipKey,     // a listing from a start-after that is no key: its continuation leaves out a key
};

struct FaultAction {
  FaultKind kind = FaultKind::kStatus;
  uint64_t value = 0;    // status, seconds, requests or bytes a second, milliseconds
  uint64_t offset = 0;   // within the body: of a stall, else the same as `value`
  bool at_head = false;  // of cut and reset: the offset is within the head
  std::string code;      // of an error
};

struct FaultRule {
  std::string method;                   // "*": any
  std::vector<std::string> key_pieces;  // the glob, decoded, split at its stars
  FaultAction action;
  double probability = 1;
  uint64_t after = 0;                                     // matches that pass before the rule may act
  uint64_t count = std::numeric_limits<uint64_t>::max();  // times that it acts
  double from_s = 0;                                      // since its first match
  double until_s = std::numeric_limits<double>::infinity();
};

/// Returns InvalidArgument with the place of the error and the expected form.
absl::StatusOr<FaultRule> ParseFaultRule(std::string_view spec);

bool MatchesKey(const FaultRule& rule, std::string_view key);

/// Describes a request, as far as injected faults and latency depend on it.
struct RequestIdentity {
  std::string_view method;
  std::string_view key;    // "bucket/key", or "bucket/prefix" of a listing
  std::string_view range;  // distinguishes requests for ranges of one object
  uint64_t attempt = 0;    // how often this request was seen before
};

/// Returns a number that depends on nothing but these. `domain` separates uses.
uint64_t HashIdentity(uint64_t domain, uint64_t seed, const RequestIdentity& request);

/// Decides which rule acts on each request. Thread-safe.
class FaultPlan {
 public:
  FaultPlan(std::vector<FaultRule> rules, uint64_t seed);

  bool empty() const { return rules_.empty(); }

  /// Returns the action of the first rule that matches and wins its draw. Counts the match.
  std::optional<FaultAction> Draw(const RequestIdentity& request, std::chrono::steady_clock::time_point now);

  /// Returns how often each rule has acted.
  std::vector<uint64_t> firings() const;

 private:
  struct RuleState {
    uint64_t matches = 0;
    uint64_t firings = 0;
    std::chrono::steady_clock::time_point first_match;
    std::optional<TokenBucket> bucket;  // of a limit
  };
  bool Acts(size_t rule, const RequestIdentity& request, std::chrono::steady_clock::time_point now);

  const std::vector<FaultRule> rules_;
  const uint64_t seed_;
  mutable std::mutex mutex_;
  std::vector<RuleState> states_;
};

}  // namespace millrace
