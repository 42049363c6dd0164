#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "s3/get_exchange.h"
#include "s3/testing/exchange_driver.h"

/// These helpers are for the tests of GetExchange.

namespace millrace {

inline std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 11 % 26);
  return text;
}

/// There is one object, answered as S3 does, except for what a test makes go wrong.
class GetTest : public ::testing::Test {
 protected:
  /// Returns the right answer to a request.
  ScriptedAnswer Serve(const HttpRequest& request) {
    ScriptedAnswer answer;
    answer.headers.Add("ETag", "\"" + etag_ + "\"");
    const auto if_match = request.head.headers.Find("if-match");
    if (if_match && *if_match != "\"" + etag_ + "\"") {
      return {.status = 412, .headers = {}, .body = "<Error><Code>PreconditionFailed</Code></Error>"};
    }
    if (request.head.method == "HEAD") {
      answer.headers.Add("Content-Length", std::to_string(object_.size()));
      return answer;
    }
    if (!request.head.headers.Has("range")) {
      answer.body = object_;
      if (!stored_crc32c_.empty()) answer.headers.Add("x-amz-checksum-crc32c", stored_crc32c_);
      return answer;
    }
    const ByteRange range = RangeOf(request);
    if (range.offset >= object_.size())
      return {.status = 416, .headers = {}, .body = "<Error><Code>InvalidRange</Code></Error>"};
    answer.status = 206;
    answer.body = object_.substr(range.offset, range.length);
    answer.headers.Add("Content-Range", "bytes " + std::to_string(range.offset) + "-" +
                                            std::to_string(range.offset + answer.body.size() - 1) + "/" +
                                            std::to_string(object_.size()));
    return answer;
  }

  static ByteRange RangeOf(const HttpRequest& request) {
    const std::string text(request.head.headers.Find("range").value_or(""));
    uint64_t first = 0;
    uint64_t last = 0;
    EXPECT_EQ(std::sscanf(text.c_str(), "bytes=%lu-%lu", &first, &last), 2) << text;
    return {first, last - first + 1};
  }

  /// Runs a GET of `range`; `break_answer(attempt, answer)` may spoil the right answer (attempts from 1).
  absl::StatusOr<GetResult> Run(ByteRange range, std::function<void(int, ScriptedAnswer&)> break_answer = nullptr,
                                GetOptions options = {}) {
    buffer_.assign(range.length, '?');
    options.range = range;
    std::optional<absl::StatusOr<GetResult>> result;
    int calls = 0;
    GetExchange exchange(*context_, "bucket", "dir/key", {reinterpret_cast<std::byte*>(buffer_.data()), buffer_.size()},
                         std::move(options), [&](absl::StatusOr<GetResult> got) {
                           result = std::move(got);
                           ++calls;
                         });
    ExchangeDriver driver([&, attempt = 0](const HttpRequest& request) mutable {
      ScriptedAnswer answer = Serve(request);
      ++attempt;
      if (break_answer) break_answer(attempt, answer);
      return answer;
    });
    driver.Run(exchange);
    requests_ = std::move(driver.requests);
    waits_ = std::move(driver.waits);
    EXPECT_EQ(calls, 1);
    return *std::move(result);
  }

  void UseConfig(S3Config config) { context_.emplace(std::move(config), 7); }

  std::vector<ByteRange> Ranges() const {
    std::vector<ByteRange> ranges;
    for (const HttpRequest& request : requests_) ranges.push_back(RangeOf(request));
    return ranges;
  }

  std::optional<S3Context> context_{std::in_place, TestS3Config(), 7};
  std::string object_ = Pattern(300'000);
  std::string etag_ = "etag-1";
  std::string stored_crc32c_;  // as the header has it; sent with the whole object, as S3 does
  std::string buffer_;
  std::vector<HttpRequest> requests_;
  std::vector<absl::Duration> waits_;
};

inline void FailWithStatus(ScriptedAnswer& answer, int status, std::string code = "") {
  answer = {.status = status,
            .headers = {},
            .body = code.empty() ? "" : "<Error><Code>" + code + "</Code><Message>as scripted</Message></Error>"};
}

inline void FailWithoutHead(ScriptedAnswer& answer, HttpErrorKind kind) {
  answer = {.status = 0, .headers = {}, .body = "", .error = kind};
}

}  // namespace millrace
