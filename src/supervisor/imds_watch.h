#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "aws/imds.h"
#include "supervisor/notice.h"

namespace millrace {

/// Watches the instance metadata service of EC2 for notices. A state machine without I/O, clock or threads. The caller
/// makes the call of each step and gives the answer to OnAnswer, or waits and calls AfterWait; it never ends.
///
/// All four documents are read every two seconds. The token is renewed before it expires, and once more if the service
/// does not know it. No answer, a refusal and a document that cannot be understood all mean that there is no notice;
/// if that lasts for three rounds, one `problem` says so. While there is no token, rounds are up to a minute apart.
class ImdsWatch {
 public:
  struct Step {
    std::optional<TextRequest> call;
    absl::Duration wait;          // if there is no call
    std::vector<Notice> notices;  // each once
    std::string problem;          // a sentence, once; "" if there is nothing to say
  };

  explicit ImdsWatch(EndpointUrl service) : session_(std::move(service)) {}

  Step Begin(absl::Time now) { return Next(now, {}); }
  Step OnAnswer(const TextAnswer& answer, absl::Time now);
  Step AfterWait(absl::Time now) { return Next(now, {}); }

 private:
  Step Next(absl::Time now, Step step);
  Step OnToken(const TextAnswer& answer, absl::Time now);
  void Read(const TextAnswer& answer, absl::Time now, Step& step);
  void Add(std::optional<Notice> notice, std::string_view document, Step& step);
  Step EndRound(Step step);

  ImdsSession session_;
  absl::Time renew_ = absl::InfinitePast();
  bool asked_token_ = false;  // the call in flight
  bool renewed_ = false;      // in this round, after a 401
  size_t path_ = 0;           // the next document of this round
  absl::Duration skew_;       // the clock of the service minus ours
  std::string failed_;        // how a call of this round failed; "" if none did
  int failed_rounds_ = 0;     // in a row
  std::set<std::string> known_;
};

}  // namespace millrace
