#include "s3/span_verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "base/crypto.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Bytes 100 to 200 of an object come into a buffer that is empty at first.
class SpanVerifierTest : public ::testing::Test {
 protected:
  SpanVerifierTest() {
    for (size_t i = 0; i < text_.size(); ++i) text_[i] = static_cast<char>('a' + i % 23);
  }

  SpanChecksum Span(uint64_t offset, uint64_t length) const {
    return {{offset, length}, Crc32c(AsBytes(std::string_view(text_).substr(offset - range_.offset, length)))};
  }

  /// Writes the current bytes; they may be overwritten when the verifier has seen them.
  void Put(uint64_t begin, uint64_t end) {
    std::memcpy(buffer_.data() + (begin - range_.offset), text_.data() + (begin - range_.offset), end - begin);
  }
  void Wipe(uint64_t begin, uint64_t end) { std::memset(buffer_.data() + (begin - range_.offset), 0, end - begin); }

  const ByteRange range_{100, 100};
  std::string text_ = std::string(100, 'x');
  std::string buffer_ = std::string(100, '\0');
};

TEST_F(SpanVerifierTest, SpansAreLookedAtWhenTheirBytesCome) {
  const std::vector<SpanChecksum> spans = {Span(100, 30), Span(130, 0), Span(140, 60)};
  SpanVerifier verifier(spans, range_, AsBytes(buffer_));
  verifier.Begin(100);
  for (uint64_t at = 100; at < 200; at += 10) {
    Put(at, at + 10);
    verifier.Came(at + 10);
    Wipe(at, at + 10);  // nobody reads it once more
  }
  EXPECT_THAT(verifier.Damaged(), IsEmpty());
}

TEST_F(SpanVerifierTest, DamagedOnesAreTold) {
  std::vector<SpanChecksum> spans = {Span(100, 30), Span(130, 30), Span(160, 40)};
  spans[1].crc32c ^= 1;
  SpanVerifier verifier(spans, range_, AsBytes(buffer_));
  Put(100, 200);
  verifier.Begin(100);
  verifier.Came(145);
  verifier.Came(200);
  EXPECT_THAT(verifier.Damaged(), ElementsAre(ByteRange{130, 30}));
}

TEST_F(SpanVerifierTest, ASpanThatComesInTwoAnswersIsLookedAtInTheEnd) {
  const std::vector<SpanChecksum> spans = {Span(100, 50), Span(150, 50)};
  SpanVerifier verifier(spans, range_, AsBytes(buffer_));
  verifier.Begin(100);
  Put(100, 120);
  verifier.Came(120);
  verifier.Begin(120);
  Put(120, 200);
  verifier.Came(200);
  Wipe(150, 200);  // it came in one
  EXPECT_THAT(verifier.Damaged(), IsEmpty());
}

TEST_F(SpanVerifierTest, OnlyWhatWasDamagedIsLookedAtAgain) {
  const std::vector<SpanChecksum> spans = {Span(100, 50), Span(150, 50)};
  SpanVerifier verifier(spans, range_, AsBytes(buffer_));
  Put(100, 150);
  verifier.Begin(100);
  verifier.Came(200);
  EXPECT_THAT(verifier.Damaged(), ElementsAre(ByteRange{150, 50}));
  verifier.Begin(150);
  Wipe(100, 150);
  Put(150, 200);
  verifier.Came(200);
  EXPECT_THAT(verifier.Damaged(), IsEmpty());
  verifier.Reset();
  EXPECT_THAT(verifier.Damaged(), ElementsAre(ByteRange{100, 50}));
}

TEST_F(SpanVerifierTest, SpansMayOverlapAndBeInAnyOrder) {
  const std::vector<SpanChecksum> spans = {Span(150, 50), Span(100, 60), Span(120, 70), Span(120, 10)};
  SpanVerifier verifier(spans, range_, AsBytes(buffer_));
  Put(100, 200);
  verifier.Begin(100);
  for (uint64_t end = 100; end <= 200; end += 25) verifier.Came(end);
  EXPECT_THAT(verifier.Damaged(), IsEmpty());
  Wipe(195, 200);
  verifier.Reset();
  EXPECT_THAT(verifier.Damaged(), ElementsAre(ByteRange{150, 50}));
}

}  // namespace
}  // namespace millrace
