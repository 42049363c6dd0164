#pragma once

#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/time/time.h"

/// Learns from the store's answers how fast requests may follow one another. It has no clock of its own.

namespace millrace {

/// Requests a second that S3 promises for each partitioned prefix at least
/// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance.html). Other stores are as fast as
/// they prove to be.
inline constexpr double kPromisedReads = 5500;
inline constexpr double kPromisedWrites = 3500;

/// Learns the pace of one kind of request to one prefix. It begins a little below what S3 promises and rises beyond it
/// by steps, as long as requests queue for it. When the store throttles, it falls to a little below what got through
/// and rises again, faster the longer all is well.
///
/// A store may also turn requests away for reasons of its own. Then as large a part of them fails after the pace has
/// fallen as before. The pace goes back to where it was, and for a while failures do not lower it (each request still
/// backs off). Not thread-safe.
class Pace {
 public:
  /// `promised_rate` is as above. The pace begins at `first_rate`, or at most of what is promised if that is more.
  Pace(double promised_rate, absl::Time now, double first_rate = 0);

  /// Zero: a turn was taken, the request goes out now. Otherwise it has to ask again after so long.
  absl::Duration TakeTurn(absl::Time now);
  /// Takes the answer to a request that went out at `sent`: throttled (503, 429, SlowDown), or any other.
  void OnAnswer(bool throttled, absl::Time sent, absl::Time now);

  bool throttled() const { return state_ != State::kRising; }
  double rate() const { return rate_; }  // requests a second

 private:
  enum class State {
    kRising,       // never throttled, or not for long
    kJudging,      // has just fallen; this round shows whether it helped
    kProbing,      // below the limit that was met, and rising towards it
    kIndifferent,  // throttled whatever the pace
  };

  bool InRound(absl::Time sent) const { return sent >= round_ && sent < round_ + kRound; }
  bool RoundIsOver(absl::Time now) const;
  void EndRound(absl::Time now);
  void Judge(double failed, absl::Time now);
  void Fall(double failed, absl::Time now);
  void Rise(double factor);
  void Enter(State state, absl::Time now);

  static constexpr absl::Duration kRound = absl::Milliseconds(100);

  const double promised_rate_;
  State state_ = State::kRising;
  double rate_;
  absl::Time next_;            // the next free turn
  absl::Time promised_until_;  // requests that were refused come back one after the other up to here
  absl::Time entered_;         // the state
  double rate_before_ = 0;     // the first of the falls that followed one another
  double failed_before_ = 0;   // the most in these, as a part of the answers

  // The requests that go out within kRound from `round_` are counted, and looked at when nearly all are answered: what
  // is turned away is answered sooner than what is served.
  absl::Time round_;
  bool queued_ = false;  // a turn was refused
  int sent_ = 0;
  int passed_ = 0;
  int failed_ = 0;
};

/// Holds the paces of all prefixes that one client uses. A prefix is the bucket and the key up to its last '/'. A new
/// one begins as fast as the one used last has become, if that is of the same bucket and kind and was not throttled.
/// Otherwise data in many folders would learn in each of them again what the store can do. Thread-safe; remembers the
/// 4,096 used last.
class Pacer {
 public:
  enum class Kind { kRead, kWrite };

  struct Turn {
    absl::Duration wait;     // as of Pace::TakeTurn
    bool throttled = false;  // the store has asked for less; otherwise the pace is only rising
    bool away = false;       // the store is away (s3/outage.h); of an exchange's turn
  };
  Turn TakeTurn(Kind kind, std::string_view bucket, std::string_view key, absl::Time now);
  /// Returns whether the store may be asked twice: it does not throttle.
  bool Unhurried(Kind kind, std::string_view bucket, std::string_view key, absl::Time now);
  void OnAnswer(Kind kind, std::string_view bucket, std::string_view key, bool throttled, absl::Time sent,
                absl::Time now);

 private:
  static constexpr size_t kMaxPaces = 4096;
  struct Entry {
    std::string prefix;
    std::string_view family;  // of the prefix: kind and bucket
    Pace pace;
    bool Is(Kind kind, std::string_view bucket, std::string_view folder) const;
  };

  Pace& At(Kind kind, std::string_view bucket, std::string_view key, absl::Time now);

  std::mutex mutex_;
  std::list<Entry> paces_;  // the one used last comes first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_prefix_;
};

}  // namespace millrace
