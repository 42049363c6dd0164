#include "s3/get_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <optional>

#include "s3/testing/get_exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(GetTest, ReadsARange) {
  const auto result = Run({1000, 5000});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->etag, "etag-1");
  EXPECT_EQ(result->object_size, object_.size());
  EXPECT_EQ(buffer_, object_.substr(1000, 5000));
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_[0].head.target, "/bucket/dir/key");
  EXPECT_EQ(requests_[0].head.headers.Find("range"), "bytes=1000-5999");
  EXPECT_FALSE(requests_[0].head.headers.Has("if-match"));
  EXPECT_TRUE(requests_[0].head.headers.Has("authorization"));
  EXPECT_EQ(context_->counters.get, 1u);
  EXPECT_EQ(context_->counters.retries, 0u);
  EXPECT_EQ(context_->counters.bytes_read, 5000u);
}

TEST_F(GetTest, AnEmptyRangeNeedsOnlyTheObject) {
  for (const uint64_t offset : {uint64_t{0}, uint64_t{10}, uint64_t{300'000}}) {
    const auto result = Run({offset, 0});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->object_size, object_.size());
    EXPECT_EQ(result->etag, "etag-1");
    ASSERT_EQ(requests_.size(), 1u);
    EXPECT_EQ(requests_[0].head.method, "HEAD");
  }
  EXPECT_EQ(Run({300'001, 0}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Run({0, 0}, nullptr, {.if_match = "other"}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Run({0, 0}, [](int, ScriptedAnswer& answer) { FailWithStatus(answer, 404); }).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(GetTest, ArgumentsAreChecked) {
  std::optional<absl::Status> status;
  const auto run = [&](uint64_t buffer_size, GetOptions options, std::string key = "key",
                       std::string bucket = "bucket") {
    std::string buffer(buffer_size, '\0');
    GetExchange exchange(*context_, bucket, key, {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()},
                         std::move(options), [&](absl::StatusOr<GetResult> got) { status = got.status(); });
    ExchangeDriver driver([](const HttpRequest&) -> ScriptedAnswer {
      ADD_FAILURE() << "nothing must be sent";
      return {};
    });
    driver.Run(exchange);
    return status->code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(run(10, {.range = {0, 11}}), kInvalid);
  EXPECT_EQ(run(2, {.range = {UINT64_MAX, 2}}), kInvalid);
  EXPECT_EQ(run(10, {.range = {0, 10}, .checksums = {{{5, 6}, 0}}}), kInvalid);
  EXPECT_EQ(run(10, {.range = {5, 10}, .checksums = {{{4, 1}, 0}}}), kInvalid);
  EXPECT_EQ(run(10, {.range = {5, 10}, .checksums = {{{6, UINT64_MAX}, 0}}}), kInvalid);
  EXPECT_EQ(run(10, {.range = {0, 10}}, ""), kInvalid);
  EXPECT_EQ(run(10, {.range = {0, 10}}, "key", "../bucket"), kInvalid);
  EXPECT_EQ(run(10, {.range = {0, 10}, .if_match = "a\r\nHost: b"}), kInvalid);
}

// ---- Each kind of failure, at each attempt

struct Breakage {
  const char* name;
  std::function<void(ScriptedAnswer&)> apply;
  bool cuts_body = false;
};

const std::vector<Breakage>& Breakages() {
  static const std::vector<Breakage> breakages = {
      {"500", [](ScriptedAnswer& a) { FailWithStatus(a, 500, "InternalError"); }},
      {"502", [](ScriptedAnswer& a) { FailWithStatus(a, 502); }},
      {"503", [](ScriptedAnswer& a) { FailWithStatus(a, 503, "SlowDown"); }},
      {"504", [](ScriptedAnswer& a) { FailWithStatus(a, 504); }},
      {"429", [](ScriptedAnswer& a) { FailWithStatus(a, 429); }},
      {"RequestTimeout", [](ScriptedAnswer& a) { FailWithStatus(a, 400, "RequestTimeout"); }},
      {"connect", [](ScriptedAnswer& a) { FailWithoutHead(a, HttpErrorKind::kConnect); }},
      {"reset before the head", [](ScriptedAnswer& a) { FailWithoutHead(a, HttpErrorKind::kReset); }},
      {"closed before the head", [](ScriptedAnswer& a) { FailWithoutHead(a, HttpErrorKind::kClosedEarly); }},
      {"no first byte", [](ScriptedAnswer& a) { FailWithoutHead(a, HttpErrorKind::kTimeout); }},
      {"malformed", [](ScriptedAnswer& a) { FailWithoutHead(a, HttpErrorKind::kMalformed); }},
      {"cut at the body's start", [](ScriptedAnswer& a) { a.error = HttpErrorKind::kClosedEarly, a.cut = 0; }, true},
      {"cut in the body", [](ScriptedAnswer& a) { a.error = HttpErrorKind::kReset, a.cut = a.body.size() / 3; }, true},
      {"stall before the last byte",
       [](ScriptedAnswer& a) { a.error = HttpErrorKind::kTimeout, a.cut = a.body.size() - 1; }, true},
      {"another range",
       [](ScriptedAnswer& a) {
         a.headers.Set("Content-Range", "bytes 7-8/300000");
         a.body = "xx";
       }},
      {"no Content-Range", [](ScriptedAnswer& a) { a.headers.Remove("Content-Range"); }},
      {"odd Content-Range", [](ScriptedAnswer& a) { a.headers.Set("Content-Range", "bytes 0-9/*"); }},
      {"range beyond the total", [](ScriptedAnswer& a) { a.headers.Set("Content-Range", "bytes 100-199/150"); }},
      {"wrong length", [](ScriptedAnswer& a) { a.body += "x"; }},
      {"short body without a length",
       [](ScriptedAnswer& a) {
         a.has_length = false;
         a.body.resize(a.body.size() / 2);
       },
       true},
      {"long body without a length",
       [](ScriptedAnswer& a) {
         a.has_length = false;
         a.body += "x";
       }},
      {"error page in 200",
       [](ScriptedAnswer& a) {
         a = {.status = 200, .headers = {}, .body = "<Error><Code>InternalError</Code></Error>"};
       }},
      {"204", [](ScriptedAnswer& a) { a = {.status = 204, .headers = {}, .body = ""}; }},
  };
  return breakages;
}

TEST_F(GetTest, EveryFailureIsSurvivedAtEveryAttempt) {
  for (const Breakage& breakage : Breakages()) {
    for (int broken = 1; broken < context_->config.max_attempts; ++broken) {
      const auto result = Run({100, 200'000}, [&](int attempt, ScriptedAnswer& answer) {
        if (attempt <= broken) breakage.apply(answer);
      });
      ASSERT_TRUE(result.ok()) << breakage.name << " x " << broken << ": " << result.status();
      ASSERT_EQ(buffer_, object_.substr(100, 200'000)) << breakage.name;
      EXPECT_GE(requests_.size(), 2u);
      EXPECT_EQ(waits_.size(), requests_.size() - 1) << breakage.name;
      // The request after a cut asks for the rest only, of the same version.
      if (breakage.cuts_body && RangeOf(requests_[1]).offset > 100) {
        EXPECT_EQ(requests_[1].head.headers.Find("if-match"), "\"etag-1\"");
      }
    }
  }
}

TEST_F(GetTest, AFailureThatStaysEndsAfterAllAttempts) {
  for (const Breakage& breakage : Breakages()) {
    const auto result = Run({100, 300}, [&](int, ScriptedAnswer& answer) { breakage.apply(answer); });
    if (breakage.cuts_body && requests_.size() > static_cast<size_t>(context_->config.max_attempts))
      FAIL() << breakage.name;
    if (result.ok()) {
      // Bodies that lose only their end are complete after some resumptions.
      EXPECT_TRUE(breakage.cuts_body) << breakage.name;
      EXPECT_EQ(buffer_, object_.substr(100, 300));
      continue;
    }
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnavailable) << breakage.name << result.status();
    EXPECT_EQ(requests_.size(), 10u) << breakage.name;
    EXPECT_THAT(std::string(result.status().message()),
                HasSubstr("s3://bucket/dir/key: GET failed after 10 attempts: "))
        << breakage.name;
  }
}

TEST_F(GetTest, ALongBodyMayBeCutMoreOftenThanThereAreAttempts) {
  // Each attempt brings 64 KiB: that is progress, not failure.
  object_ = Pattern(30 * 65'536);
  const auto result = Run({0, object_.size()}, [](int, ScriptedAnswer& answer) {
    answer.error = HttpErrorKind::kReset;
    answer.cut = 65'536;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_);
  EXPECT_EQ(requests_.size(), 30u);
  EXPECT_EQ(context_->counters.bytes_read, object_.size());
}

TEST_F(GetTest, ACutIsResumedAtTheFirstMissingByte) {
  const auto result = Run({100, 1000}, [](int attempt, ScriptedAnswer& answer) {
    if (attempt > 2) return;
    answer.error = HttpErrorKind::kReset;
    answer.cut = 300;
  });
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(Ranges(), ElementsAre(ByteRange{100, 1000}, ByteRange{400, 700}, ByteRange{700, 400}));
  EXPECT_EQ(buffer_, object_.substr(100, 1000));
  EXPECT_EQ(context_->counters.bytes_read, 1000u);
}

TEST_F(GetTest, AStaleConnectionIsReplacedAtOnce) {
  const auto result = Run({0, 10}, [](int attempt, ScriptedAnswer& answer) {
    if (attempt == 1) FailWithoutHead(answer, HttpErrorKind::kStale);
  });
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(waits_.empty());
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_FALSE(requests_[0].fresh_connection);
  EXPECT_TRUE(requests_[1].fresh_connection);
}

TEST_F(GetTest, ErrorsThatStayAreNotRetried) {
  const auto check = [&](int status, const char* code, absl::StatusCode expected, const char* message) {
    const auto result = Run({0, 10}, [&](int, ScriptedAnswer& answer) { FailWithStatus(answer, status, code); });
    EXPECT_EQ(result.status().code(), expected) << code;
    EXPECT_THAT(std::string(result.status().message()),
                AllOf(HasSubstr("s3://bucket/dir/key: GET failed: "), HasSubstr(message)));
    EXPECT_EQ(requests_.size(), 1u) << code;
  };
  check(404, "NoSuchKey", absl::StatusCode::kNotFound, "NoSuchKey: as scripted (HTTP 404); the object does not exist");
  check(403, "AccessDenied", absl::StatusCode::kPermissionDenied, "no permission");
  check(403, "InvalidAccessKeyId", absl::StatusCode::kUnauthenticated, "check AWS_ACCESS_KEY_ID");
  check(403, "SignatureDoesNotMatch", absl::StatusCode::kUnauthenticated, "check AWS_SECRET_ACCESS_KEY");
  check(416, "InvalidRange", absl::StatusCode::kOutOfRange, "the object ends before the range 0+10");
  check(400, "Odd", absl::StatusCode::kInvalidArgument, "Odd");
  const auto missing = Run({0, 10}, [](int, ScriptedAnswer& answer) { FailWithStatus(answer, 404, "NoSuchBucket"); });
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("s3://bucket: GET failed: the bucket does not exist at http://store.test:9000"));
}

TEST_F(GetTest, UntrustedTlsIsNotRetried) {
  S3Config config = TestS3Config();
  config.endpoint_url = "https://store.test:9000";
  UseConfig(config);
  const auto result = Run({0, 10}, [](int, ScriptedAnswer& answer) { FailWithoutHead(answer, HttpErrorKind::kTls); });
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("AWS_CA_BUNDLE"));
}

TEST_F(GetTest, AnErrorWhoseBodyIsCutStillCounts) {
  const auto result = Run({0, 10}, [](int, ScriptedAnswer& answer) {
    FailWithStatus(answer, 404, "NoSuchKey");
    answer.error = HttpErrorKind::kReset;
    answer.cut = 5;
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
}

// ---- Versions

TEST_F(GetTest, ThePinnedVersionIsAskedFor) {
  ASSERT_TRUE(Run({0, 10}, nullptr, {.if_match = "etag-1"}).ok());
  EXPECT_EQ(requests_[0].head.headers.Find("if-match"), "\"etag-1\"");
  const auto result = Run({0, 10}, nullptr, {.if_match = "etag-0"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("the object has been replaced"));
}

TEST_F(GetTest, AStoreThatIgnoresIfMatchIsCaught) {
  const auto result =
      Run({0, 10}, [](int, ScriptedAnswer& answer) { answer.headers.Set("ETag", "\"new\""); }, {.if_match = "etag-1"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(buffer_, "??????????");  // no byte of the other version
}

TEST_F(GetTest, AnObjectReplacedWhileItIsReadIsReadAnew) {
  const std::string old_object = object_;
  const auto result = Run({0, 1000}, [&](int attempt, ScriptedAnswer& answer) {
    if (attempt != 1) return;
    answer.error = HttpErrorKind::kReset;
    answer.cut = 500;
    std::reverse(object_.begin(), object_.end());
    etag_ = "etag-2";
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->etag, "etag-2");
  EXPECT_EQ(buffer_, object_.substr(0, 1000));
  EXPECT_THAT(Ranges(), ElementsAre(ByteRange{0, 1000}, ByteRange{500, 500}, ByteRange{0, 1000}));
}

TEST_F(GetTest, AnObjectReplacedAllTheTimeIsGivenUp) {
  // Each attempt makes progress, so that the count of failures alone would never end it.
  object_ = Pattern(200'000);
  int version = 1;
  const auto result = Run({0, 200'000}, [&](int attempt, ScriptedAnswer& answer) {
    if (attempt > 50) return FailWithStatus(answer, 404);  // the end of this test, at any rate
    if (answer.status != 206) return;
    answer.error = HttpErrorKind::kReset;
    answer.cut = 100'000;
    etag_ = "etag-" + std::to_string(++version);
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(result.status().message()),
              AllOf(HasSubstr("s3://bucket/dir/key"), HasSubstr("changed 4 times while it was read")));
  // They are a cut and a refusal of the old version, for each of the four versions read.
  EXPECT_EQ(requests_.size(), 8u);
}

TEST_F(GetTest, AStoreThatIgnoresIfMatchDoesNotRestartForEver) {
  int version = 1;
  const auto result = Run({0, 200'000}, [&](int attempt, ScriptedAnswer& answer) {
    if (attempt > 50) return FailWithStatus(answer, 404);
    answer = {};
    answer.status = 206;
    const ByteRange range = attempt % 2 == 1 ? ByteRange{0, 200'000} : ByteRange{100'000, 100'000};
    answer.body = object_.substr(range.offset, range.length);
    answer.headers.Add("Content-Range",
                       "bytes " + std::to_string(range.offset) + "-199999/" + std::to_string(object_.size()));
    answer.headers.Add("ETag", "\"etag-" + std::to_string(++version) + "\"");
    answer.error = HttpErrorKind::kReset;
    answer.cut = 100'000;
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(GetTest, APinnedObjectReplacedWhileItIsReadFails) {
  const auto result = Run({0, 1000},
                          [&](int, ScriptedAnswer& answer) {
                            answer.error = HttpErrorKind::kReset;
                            answer.cut = 500;
                            etag_ = "etag-2";
                          },
                          {.if_match = "etag-1"});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(requests_.size(), 2u);
}

TEST_F(GetTest, TheObjectEndsBeforeTheRange) {
  for (const ByteRange range : {ByteRange{299'990, 11}, ByteRange{300'000, 1}, ByteRange{0, 300'001}}) {
    EXPECT_EQ(Run(range).status().code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(requests_.size(), 1u);
  }
  EXPECT_TRUE(Run({299'990, 10}).ok());
}

// ---- A store that ignores Range

TEST_F(GetTest, TheWholeObjectInsteadOfTheRange) {
  const auto whole = [this](int, ScriptedAnswer& answer) {
    answer.status = 200;
    answer.headers.Remove("Content-Range");
    answer.body = object_;
  };
  for (const ByteRange range : {ByteRange{0, 10}, ByteRange{1000, 10}, ByteRange{299'990, 10}, ByteRange{0, 300'000}}) {
    const auto result = Run(range, whole);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(buffer_, object_.substr(range.offset, range.length));
    EXPECT_EQ(result->object_size, object_.size());
  }
  object_.resize(100);
  const auto result = Run({50, 10}, [&](int attempt, ScriptedAnswer& answer) {
    whole(attempt, answer);
    answer.body.resize(55);
  });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
}

// ---- What is random is only when

TEST_F(GetTest, WaitsDependOnTheSeedOnly) {
  const auto waits_of = [](uint64_t seed) {
    S3Context context(TestS3Config(), seed);
    std::string buffer(10, '\0');
    GetExchange exchange(context, "bucket", "key", {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()},
                         {.range = {0, 10}}, [](absl::StatusOr<GetResult>) {});
    ExchangeDriver driver([](const HttpRequest&) { return ScriptedAnswer{.status = 503, .headers = {}, .body = ""}; });
    driver.Run(exchange);
    return driver.waits;
  };
  EXPECT_EQ(waits_of(1).size(), 9u);
  EXPECT_EQ(waits_of(1), waits_of(1));
  EXPECT_NE(waits_of(1), waits_of(2));
}

}  // namespace
}  // namespace millrace
