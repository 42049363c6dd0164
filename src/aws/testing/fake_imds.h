#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "aws/imds.h"

namespace millrace {

inline TextAnswer ImdsReply(int status, std::string text = "") {
  TextAnswer answer;
  answer.head.status = status;
  answer.result.text = std::move(text);
  return answer;
}

/// No answer came in time.
inline TextAnswer NoImdsReply() {
  TextAnswer answer;
  answer.result.error = HttpErrorKind::kTimeout;
  return answer;
}

/// This is a strict model of the instance metadata service, which fails as a test wants. It knows the documents of an
/// instance, demands a token that has not expired, and counts.
class FakeImds {
 public:
  TextAnswer Answer(const TextRequest& request) {
    const HttpRequestHead& head = request.head;
    ++requests;
    if (head.target == "/latest/api/token") {
      EXPECT_EQ(head.method, "PUT");
      const int asked = std::stoi(std::string(head.headers.Find("X-aws-ec2-metadata-token-ttl-seconds").value_or("0")));
      EXPECT_TRUE(asked >= 1 && asked <= 21600) << asked;
      ++tokens;
      if (token_fault) return *token_fault;
      token = "token-" + std::to_string(tokens);
      expires = now + ttl;
      TextAnswer answer = Dated(200, token);
      answer.head.headers.Add("x-aws-ec2-metadata-token-ttl-seconds", std::to_string(absl::ToInt64Seconds(ttl)));
      return answer;
    }
    EXPECT_EQ(head.method, "GET");
    const std::string given(head.headers.Find("X-aws-ec2-metadata-token").value_or(""));
    EXPECT_NE(given, "") << "nothing may be read without a token";
    if (fault) return *fault;
    if (given != token || now >= expires) {
      ++refused;
      return ImdsReply(401);
    }
    ++reads[head.target];
    const auto at = documents.find(head.target);
    return at == documents.end() ? Dated(404, "") : Dated(200, at->second);
  }

  absl::Time now = absl::FromUnixSeconds(1'767'225'600);  // 2026-01-01
  absl::Duration skew;                                    // of its clock
  absl::Duration ttl = absl::Hours(6);
  std::map<std::string, std::string> documents;
  std::optional<TextAnswer> token_fault;
  std::optional<TextAnswer> fault;
  std::string token;
  absl::Time expires = absl::InfinitePast();
  int requests = 0;
  int tokens = 0;
  int refused = 0;
  std::map<std::string, int> reads;

 private:
  TextAnswer Dated(int status, std::string text) const {
    TextAnswer answer = ImdsReply(status, std::move(text));
    answer.head.headers.Add("Date", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", now + skew, absl::UTCTimeZone()));
    return answer;
  }
};

}  // namespace millrace
