#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "s3/checksum.h"
#include "s3/testing/exchange_fixture.h"
#include "s3/testing/get_exchange_fixture.h"

/// These tests request, and check, the parts that an object was uploaded in.

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- HEAD of the first part

class HeadPartsTest : public ExchangeTest {
 protected:
  absl::StatusOr<ObjectInfo> HeadParts(ExchangeDriver::Store store) {
    auto object = Run<absl::StatusOr<ObjectDescription>>(std::move(store), [](S3Context& context, auto done) {
      return std::make_unique<HeadExchange>(context, "bucket", "key", std::move(done), HeadExchange::Ask::kParts);
    });
    if (!object.ok()) return std::move(object).status();
    return std::move(object->info);
  }

  /// Returns S3's answer for part 1 of an object of `count` parts.
  static ScriptedAnswer FirstPart(const std::string& bytes, const std::string& size, const std::string& count) {
    return {.status = 206,
            .headers = Headers({{"Content-Length", bytes},
                                {"Content-Range", "bytes 0-99/" + size},
                                {"ETag", "\"abc-3\""},
                                {"x-amz-mp-parts-count", count}}),
            .body = ""};
  }
};

TEST_F(HeadPartsTest, TellsTheSizeOfTheParts) {
  const auto info = HeadParts(InTurn({FirstPart("100", "250", "3")}));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->part_bytes, 100u);
  EXPECT_EQ(info->size, 250u);
  EXPECT_EQ(info->etag, "abc-3");
  EXPECT_THAT(requests_[0].head.target, HasSubstr("partNumber=1"));
  EXPECT_FALSE(requests_[0].head.headers.Has("x-amz-checksum-mode")) << "it would be that of the part";
}

TEST_F(HeadPartsTest, UnevenPartsAreNotKnown) {
  EXPECT_EQ(HeadParts(InTurn({FirstPart("100", "300", "3")}))->part_bytes, 100u);
  for (const char* size : {"200", "301", "1000"}) {
    const auto info = HeadParts(InTurn({FirstPart("100", size, "3")}));
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->part_bytes, 0u) << size;
  }
  for (const char* count : {"", "0", "1", "x", "99999999999999999999"}) {
    EXPECT_EQ(HeadParts(InTurn({FirstPart("100", "250", count)}))->part_bytes, 0u) << count;
  }
  EXPECT_EQ(HeadParts(InTurn({FirstPart("0", "250", "3")}))->part_bytes, 0u);
}

TEST_F(HeadPartsTest, AStoreThatKnowsNoPartsIsNoError) {
  // It ignores the question, or refuses it.
  const auto ignored = HeadParts(InTurn({kFound}));
  ASSERT_TRUE(ignored.ok()) << ignored.status();
  EXPECT_EQ(ignored->size, 42u);
  EXPECT_EQ(ignored->part_bytes, 0u);
  EXPECT_EQ(requests_.size(), 1u);
  for (const int status : {400, 403, 405, 416, 501}) {
    const auto refused = HeadParts(InTurn({Error(status), kFound}));
    ASSERT_TRUE(refused.ok()) << status << " " << refused.status();
    EXPECT_EQ(refused->size, 42u);
    ASSERT_EQ(requests_.size(), 2u) << status;
    EXPECT_EQ(requests_[1].head.target, "/bucket/key");
    EXPECT_TRUE(waits_.empty());
  }
}

TEST_F(HeadPartsTest, OtherErrorsAreThoseOfAnyHead) {
  EXPECT_EQ(HeadParts(InTurn({Error(404)})).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(requests_.size(), 1u);
  EXPECT_EQ(HeadParts(InTurn({Error(503), FirstPart("100", "250", "3")}))->part_bytes, 100u);
  EXPECT_EQ(HeadParts(InTurn({Error(403)})).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(HeadPartsTest, TheChecksumOfPartsIsToldByTheOtherHead) {
  const ScriptedAnswer composite = {.status = 200,
                                    .headers = Headers({{"Content-Length", "250"},
                                                        {"ETag", "\"abc-3\""},
                                                        {"x-amz-checksum-crc32c", "4waSgw==-3"},
                                                        {"x-amz-checksum-type", "COMPOSITE"}}),
                                    .body = ""};
  const auto info = Head(InTurn({composite}));
  ASSERT_TRUE(info.ok() && info->checksum);
  EXPECT_EQ(info->checksum->parts, 3u);
}

// ---- GET of a part

class GetPartTest : public GetTest {
 protected:
  /// Returns a GET of the part 1000+500, answered with its checksum.
  absl::StatusOr<GetResult> RunPart(std::function<void(int, ScriptedAnswer&)> break_answer = nullptr) {
    GetOptions options;
    options.part = true;
    return Run(
        kPart,
        [&](int attempt, ScriptedAnswer& answer) {
          if (answer.body.size() == kPart.length) {
            answer.headers.Add("x-amz-checksum-type", "COMPOSITE");
            answer.headers.Add("x-amz-checksum-crc32c", checksum_);
          }
          if (break_answer) break_answer(attempt, answer);
        },
        options);
  }

  static constexpr ByteRange kPart{1000, 500};
  std::string checksum_ = Crc32cHeader(Crc32c(AsBytes(std::string_view(object_).substr(1000, 500))));
};

TEST_F(GetPartTest, WhatDoesNotMatchIsFetchedAgain) {
  const auto result = RunPart([](int attempt, ScriptedAnswer& answer) {
    if (attempt <= 2) answer.body[static_cast<size_t>(attempt)] ^= 1;
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_.substr(1000, 500));
  EXPECT_THAT(Ranges(), ElementsAre(kPart, kPart, kPart));
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-mode"), "ENABLED");
}

TEST_F(GetPartTest, TheRestAfterACutIsCheckedTogetherWithTheBeginning) {
  const auto result = RunPart([](int attempt, ScriptedAnswer& answer) {
    if (attempt == 1) {
      answer.error = HttpErrorKind::kReset;
      answer.cut = 200;
      answer.body[7] ^= 1;
    }
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_.substr(1000, 500));
  EXPECT_THAT(Ranges(), ElementsAre(kPart, ByteRange{1200, 300}, kPart));
}

TEST_F(GetPartTest, TheSameBytesTwiceAreDamagedInTheStore) {
  checksum_ = "AAAAAA==";
  const auto result = RunPart();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("the part 1000+500 does not match the CRC32C"));
  EXPECT_EQ(requests_.size(), 2u);
}

TEST_F(GetPartTest, DamageThatDoesNotEndIsDataLoss) {
  const auto result =
      RunPart([](int attempt, ScriptedAnswer& answer) { answer.body[static_cast<size_t>(attempt)] ^= 1; });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(requests_.size(), 4u);
}

TEST_F(GetPartTest, AnAnswerThatDoesNotSpeakOfPartsIsNotHeldAgainstIt) {
  const auto result = RunPart([](int, ScriptedAnswer& answer) {
    answer.headers.Set("x-amz-checksum-type", "FULL_OBJECT");
    answer.headers.Set("x-amz-checksum-crc32c", "AAAAAA==");
  });
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(requests_.size(), 1u);
}

}  // namespace
}  // namespace millrace
