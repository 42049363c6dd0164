#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/hex.h"
#include "s3/checksum.h"
#include "s3/get_exchange.h"
#include "s3/testing/get_exchange_fixture.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- Of the caller

uint32_t ChecksumOf(const std::string& object, ByteRange range) {
  return Crc32c(AsBytes(std::string_view(object).substr(range.offset, range.length)));
}

TEST_F(GetTest, SpansWithBadChecksumsAreFetchedAgain) {
  const std::vector<ByteRange> spans = {{1000, 100}, {1100, 100}, {1200, 100}, {1400, 50}, {1450, 0}};
  GetOptions options;
  for (const ByteRange span : spans) options.checksums.push_back({span, ChecksumOf(object_, span)});
  const auto result = Run(
      {1000, 500},
      [](int attempt, ScriptedAnswer& answer) {
        if (attempt != 1) return;
        answer.body[110] ^= 1;
        answer.body[250] ^= 1;
        answer.body[449] ^= 1;
      },
      options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_.substr(1000, 500));
  // Neighbours are fetched together, sound spans not at all.
  EXPECT_THAT(Ranges(), ElementsAre(ByteRange{1000, 500}, ByteRange{1100, 200}, ByteRange{1400, 50}));
}

TEST_F(GetTest, ASpanThatStaysBadIsDataLoss) {
  const auto result =
      Run({0, 100}, nullptr, {.checksums = {{{0, 50}, ChecksumOf(object_, {0, 50})}, {{50, 50}, 12345}}});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("bytes 50+50 do not match their checksum"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("restore the object from a copy"));
  EXPECT_THAT(Ranges(), ElementsAre(ByteRange{0, 100}, ByteRange{50, 50}, ByteRange{50, 50}, ByteRange{50, 50}));
}

TEST_F(GetTest, AnEmptySpanCannotBeRepaired) {
  EXPECT_EQ(Run({0, 100}, nullptr, {.checksums = {{{50, 0}, 12345}}}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(requests_.size(), 1u);
}

TEST_F(GetTest, BytesAcrossACutAreVerifiedToo) {
  GetOptions options;
  options.checksums = {{{0, 1000}, ChecksumOf(object_, {0, 1000})}};
  const auto result = Run(
      {0, 1000},
      [](int attempt, ScriptedAnswer& answer) {
        if (attempt != 1) return;
        answer.error = HttpErrorKind::kReset;
        answer.cut = 500;
        answer.body[3] ^= 1;
      },
      options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_.substr(0, 1000));
  EXPECT_THAT(Ranges(), ElementsAre(ByteRange{0, 1000}, ByteRange{500, 500}, ByteRange{0, 1000}));
}

TEST_F(GetTest, SpansThatMatchAsTheyComeAreNotLookedAtAgain) {
  GetOptions options;
  for (uint64_t at = 0; at < 1000; at += 100) options.checksums.push_back({{at, 100}, ChecksumOf(object_, {at, 100})});
  // After the last byte, when all spans have been compared, nothing looks at the buffer any more.
  const auto result = Run(
      {0, 1000}, [this](int, ScriptedAnswer& answer) { answer.came = [this] { buffer_[150] ^= 1; }; }, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NE(buffer_, object_.substr(0, 1000));
  EXPECT_THAT(Ranges(), ElementsAre(ByteRange{0, 1000}));
}

// ---- Of the store

GetOptions Whole() {
  GetOptions options;
  options.whole = true;
  return options;
}

void FlipOneBit(ScriptedAnswer& answer) {
  answer.body[answer.body.size() / 2] ^= 1;
}

TEST_F(GetTest, AWholeObjectIsCheckedAgainstTheChecksumOfTheStore) {
  stored_crc32c_ = Crc32cHeader(Crc32c(AsBytes(object_)));
  const auto result = Run(
      {0, object_.size()},
      [](int attempt, ScriptedAnswer& answer) {
        if (attempt <= 2) answer.body[static_cast<size_t>(attempt)] ^= 1;
      },
      Whole());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_);
  EXPECT_TRUE(result->verified);
  ASSERT_EQ(requests_.size(), 3u);
  EXPECT_EQ(requests_[0].head.headers.Find("x-amz-checksum-mode"), "ENABLED");
  EXPECT_FALSE(requests_[0].head.headers.Has("range")) << "S3 tells the checksum with the whole object only";
}

TEST_F(GetTest, AnObjectThatIsDamagedInTheStoreIsDataLoss) {
  stored_crc32c_ = Crc32cHeader(Crc32c(AsBytes(object_)));
  const auto result = Run(
      {0, object_.size()}, [](int, ScriptedAnswer& answer) { FlipOneBit(answer); }, Whole());
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("does not match the CRC32C that the store keeps"));
  EXPECT_EQ(requests_.size(), 2u) << "the same bytes twice: not the network";
}

TEST_F(GetTest, TheRestAfterACutIsCheckedTogetherWithTheBeginning) {
  stored_crc32c_ = Crc32cHeader(Crc32c(AsBytes(object_)));
  const auto result = Run(
      {0, object_.size()},
      [](int attempt, ScriptedAnswer& answer) {
        if (attempt == 1) {
          answer.error = HttpErrorKind::kReset;
          answer.cut = 100'000;
        }
        if (attempt == 2) FlipOneBit(answer);  // a range: its answer has no checksum
      },
      Whole());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_);
  ASSERT_EQ(requests_.size(), 3u);
  EXPECT_TRUE(requests_[1].head.headers.Has("range"));
}

TEST_F(GetTest, AnETagThatIsAnMd5CountsWhereThereIsNoOther) {
  etag_ = HexEncode(Md5(AsBytes(object_)));
  const auto result = Run(
      {0, object_.size()},
      [](int attempt, ScriptedAnswer& answer) {
        if (attempt == 1) FlipOneBit(answer);
      },
      Whole());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_);
  EXPECT_TRUE(result->verified);
  EXPECT_EQ(requests_.size(), 2u);
}

TEST_F(GetTest, AnETagThatOnlyLooksLikeAnMd5CostsOneMoreRead) {
  etag_ = "0123456789abcdef0123456789abcdef";
  auto result = Run({0, object_.size()}, nullptr, Whole());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->verified);
  EXPECT_EQ(buffer_, object_);
  EXPECT_EQ(requests_.size(), 2u);
  result = Run({0, object_.size()}, nullptr, Whole());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->verified);
  EXPECT_EQ(requests_.size(), 1u) << "once and for all";
}

TEST_F(GetTest, ThatAnETagIsNoMd5IsLearntWithoutRetries) {
  S3Config config = TestS3Config();
  config.max_attempts = 1;
  UseConfig(config);
  etag_ = "0123456789abcdef0123456789abcdef";
  const auto result = Run({0, object_.size()}, nullptr, Whole());
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(waits_.empty());
}

TEST_F(GetTest, AWholeObjectNeedsNoETag) {
  const auto result = Run(
      {0, object_.size()}, [](int, ScriptedAnswer& answer) { answer.headers = {}; }, Whole());
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(buffer_, object_);
}

TEST_F(GetTest, APartOfAnObjectIsNotHeldAgainstTheChecksumOfTheWhole) {
  stored_crc32c_ = Crc32cHeader(Crc32c(AsBytes(object_)));
  ASSERT_TRUE(Run({0, 1000}, nullptr, Whole()).ok()) << "it has grown since the caller looked";
  EXPECT_EQ(buffer_, object_.substr(0, 1000));
  ASSERT_TRUE(Run({0, object_.size()}).ok());
  EXPECT_FALSE(requests_[0].head.headers.Has("x-amz-checksum-mode")) << "nobody asked";
}

TEST_F(GetTest, ValidationMayBeSwitchedOff) {
  S3Config config = TestS3Config();
  config.validate_downloads = false;
  S3Context context(config, 7);
  std::string buffer(10, '?');
  GetOptions options = Whole();
  options.range = {0, 10};
  std::vector<HttpRequest> requests;
  GetExchange exchange(context, "bucket", "key", {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()}, options,
                       [](const absl::StatusOr<GetResult>& got) { EXPECT_TRUE(got.ok()) << got.status(); });
  ExchangeDriver driver([](const HttpRequest&) {
    ScriptedAnswer answer{.status = 200, .headers = {}, .body = "0123456789"};
    answer.headers.Add("ETag", "\"e\"");
    answer.headers.Add("x-amz-checksum-crc32c", "AAAAAA==");
    return answer;
  });
  driver.Run(exchange);
  EXPECT_FALSE(driver.requests[0].head.headers.Has("x-amz-checksum-mode"));
}

}  // namespace
}  // namespace millrace
