#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "s3/calls.h"
#include "s3/object_exchanges.h"
#include "s3/testing/exchange_driver.h"

/// These helpers are for the tests of exchanges.

namespace millrace {

inline ScriptedAnswer Error(int status, const std::string& code = "", HttpHeaders headers = {}) {
  return {.status = status,
          .headers = std::move(headers),
          .body = code.empty() ? "" : "<Error><Code>" + code + "</Code></Error>"};
}

inline ScriptedAnswer Broken(HttpErrorKind kind) {
  return {.status = 0, .headers = {}, .body = "", .error = kind};
}

inline HttpHeaders Headers(std::initializer_list<HttpHeaders::Field> fields) {
  HttpHeaders headers;
  for (const auto& [name, value] : fields) headers.Add(name, value);
  return headers;
}

/// Answers in turn; the last one is repeated.
inline ExchangeDriver::Store InTurn(std::vector<ScriptedAnswer> answers) {
  return [answers = std::move(answers), next = size_t{0}](const HttpRequest&) mutable {
    return answers[std::min(next++, answers.size() - 1)];
  };
}

template <typename T>
class Catcher {
 public:
  auto Callback() {
    return [this](T result) {
      EXPECT_FALSE(result_.has_value()) << "called twice";
      result_ = std::move(result);
    };
  }
  T& operator*() { return *result_; }
  T* operator->() { return &*result_; }

 private:
  std::optional<T> result_;
};

class ExchangeTest : public ::testing::Test {
 protected:
  void Use(S3Config config) { context_.emplace(std::move(config), 1); }

  /// Runs an exchange of that type on `store`; `make` gets the context and the callback.
  template <typename Result, typename Make>
  Result Run(ExchangeDriver::Store store, Make make) {
    Catcher<Result> catcher;
    const std::unique_ptr<S3Exchange> exchange = make(*context_, catcher.Callback());
    ExchangeDriver driver(std::move(store));
    driver.Run(*exchange);
    requests_ = std::move(driver.requests);
    waits_ = std::move(driver.waits);
    return std::move(*catcher);
  }

  absl::StatusOr<ObjectInfo> Head(ExchangeDriver::Store store) {
    absl::StatusOr<ObjectDescription> object = Describe(std::move(store));
    if (!object.ok()) return std::move(object).status();
    return std::move(object->info);
  }
  absl::StatusOr<ObjectDescription> Describe(ExchangeDriver::Store store) {
    return Run<absl::StatusOr<ObjectDescription>>(std::move(store), [](S3Context& context, auto done) {
      return std::make_unique<HeadExchange>(context, "bucket", "key", std::move(done));
    });
  }
  absl::StatusOr<ObjectInfo> Put(ExchangeDriver::Store store, PutOptions options = {}) {
    return Run<absl::StatusOr<ObjectInfo>>(std::move(store), [this, &options](S3Context& context, auto done) {
      return std::make_unique<PutExchange>(context, "bucket", "key", std::nullopt, AsBytes(body_), options,
                                           std::move(done));
    });
  }
  absl::Status Delete(ExchangeDriver::Store store, const std::string& if_match = "") {
    return Run<absl::Status>(std::move(store), [&](S3Context& context, auto done) {
      return std::make_unique<DeleteExchange>(context, "bucket", "key", if_match, std::move(done));
    });
  }
  absl::StatusOr<ListPage> List(ExchangeDriver::Store store, ListOptions options = {}) {
    return Run<absl::StatusOr<ListPage>>(std::move(store), [&](S3Context& context, auto done) {
      return NewListExchange(context, "bucket", options, std::move(done));
    });
  }
  absl::StatusOr<ObjectInfo> Complete(ExchangeDriver::Store store, std::vector<std::string> etags,
                                      CompleteOptions options = {}) {
    return Run<absl::StatusOr<ObjectInfo>>(std::move(store), [&](S3Context& context, auto done) {
      return std::make_unique<CompleteMultipartExchange>(context, "bucket", "key", "upload", etags, options,
                                                         std::move(done));
    });
  }

  const ScriptedAnswer kFound = {
      .status = 200,
      .headers =
          Headers({{"Content-Length", "42"}, {"ETag", "\"abc\""}, {"Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"}}),
      .body = ""};
  const std::string body_ = "the body";
  const ScriptedAnswer kStored = {.status = 200, .headers = Headers({{"ETag", "\"stored\""}}), .body = ""};
  std::optional<S3Context> context_{std::in_place, TestS3Config(), 1};
  std::vector<HttpRequest> requests_;
  std::vector<absl::Duration> waits_;
};

}  // namespace millrace
