#include "s3/delete_objects_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "base/crypto.h"
#include "s3/testing/exchange_driver.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Result(std::initializer_list<std::pair<std::string, std::string>> errors) {
  std::string body = "<DeleteResult>";
  for (const auto& [key, code] : errors) {
    body += "<Error><Key>" + key + "</Key><Code>" + code + "</Code><Message>why</Message></Error>";
  }
  return body + "</DeleteResult>";
}

class DeleteObjectsTest : public ::testing::Test {
 protected:
  /// Bodies of answers in turn; the last is repeated. Notes the keys that each request asked for.
  std::vector<absl::Status> Run(std::vector<std::string> keys, std::vector<std::string> answers, int status = 200) {
    asked_.clear();
    md5s_.clear();
    std::optional<std::vector<absl::Status>> result;
    DeleteObjectsExchange exchange(context_, "bucket", std::move(keys), [&](std::vector<absl::Status> statuses) {
      EXPECT_FALSE(result.has_value()) << "called twice";
      result = std::move(statuses);
    });
    ExchangeDriver driver([&](const HttpRequest& request) {
      EXPECT_EQ(request.head.method, "POST");
      EXPECT_THAT(request.head.target, HasSubstr("/bucket?delete="));
      const auto parsed = ParseDeleteObjectsXml(AsText(request.body));
      EXPECT_TRUE(parsed.ok() && parsed->quiet) << parsed.status();
      asked_.push_back(parsed->keys);
      EXPECT_EQ(request.head.headers.Find("content-md5"), Base64Encode(Md5(request.body)));
      const std::string& body = answers[std::min(asked_.size(), answers.size()) - 1];
      return ScriptedAnswer{.status = status, .headers = {}, .body = body};
    });
    driver.Run(exchange);
    return *std::move(result);
  }

  S3Context context_{TestS3Config(), 1};
  std::vector<std::vector<std::string>> asked_;
  std::vector<std::string> md5s_;
};

TEST_F(DeleteObjectsTest, OneRequestForAllKeys) {
  const std::vector<std::string> keys = {"a", "b&<>\"'", " ", "tab\tline\nreturn\r", "\xe2\x82\xac"};
  EXPECT_THAT(Run(keys, {Result({})}), ::testing::Each(absl::OkStatus()));
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_THAT(asked_[0], ::testing::UnorderedElementsAreArray(keys));
}

TEST_F(DeleteObjectsTest, ErrorsOfKeysReachTheirPlaces) {
  const auto statuses = Run({"c", "b", "a"}, {Result({{"b", "AccessDenied"}})});
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("s3://bucket/b: DeleteObjects failed: AccessDenied: why"));
  EXPECT_TRUE(statuses[2].ok());
  EXPECT_EQ(asked_.size(), 1u);
}

TEST_F(DeleteObjectsTest, KeysWhoseErrorsPassAreTriedAgainAlone) {
  const auto statuses =
      Run({"a", "b", "c", "d"}, {Result({{"b", "InternalError"}, {"d", "SlowDown"}, {"c", "AccessDenied"}}),
                                 Result({{"d", "InternalError"}}), Result({})});
  EXPECT_THAT(asked_, ElementsAre(ElementsAre("a", "b", "c", "d"), ElementsAre("b", "d"), ElementsAre("d")));
  EXPECT_TRUE(statuses[0].ok() && statuses[1].ok() && statuses[3].ok());
  EXPECT_EQ(statuses[2].code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(DeleteObjectsTest, TheyAreGivenUpInTheEnd) {
  const auto statuses = Run({"a", "b"}, {Result({{"b", "InternalError"}})});
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("InternalError"));
  EXPECT_GE(asked_.size(), 3u);
}

TEST_F(DeleteObjectsTest, WhatIsGoneIsDeletedButAMissingBucketIsAnError) {
  EXPECT_THAT(Run({"a"}, {Result({{"a", "NoSuchKey"}})}), ElementsAre(absl::OkStatus()));
  EXPECT_EQ(Run({"a"}, {Result({{"a", "NoSuchBucket"}})})[0].code(), absl::StatusCode::kNotFound);
}

TEST_F(DeleteObjectsTest, AnErrorOfTheWholeRequestIsThatOfEachKey) {
  const auto statuses = Run({"a", "b"}, {"<Error><Code>AccessDenied</Code></Error>"}, 403);
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(DeleteObjectsTest, AnswersThatMakeNoSenseAreNoSuccess) {
  EXPECT_EQ(Run({"a"}, {"<html/>"})[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Run({"a"}, {Result({{"other", "AccessDenied"}})})[0].code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Run({"a"}, {Result({{"a", "SlowDown"}, {"a", "SlowDown"}}), Result({})})[0], absl::OkStatus());
}

TEST_F(DeleteObjectsTest, KeysThatXmlWouldChangeAreRefused) {
  for (const std::string key : {"a\x01", "\xff", "\xed\xa0\x80", "\xc0\xaf", "\xef\xbf\xbf", "\xf4\x90\x80\x80", ""}) {
    EXPECT_EQ(Run({"good", key}, {Result({})})[0].code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(asked_.empty());
  }
  EXPECT_EQ(Run({}, {Result({})}).size(), 0u);
  EXPECT_EQ(Run(std::vector<std::string>(1001, "k"), {Result({})})[0].code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
