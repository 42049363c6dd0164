#include "s3/checksum.h"

#include <gtest/gtest.h>

#include <map>

#include "base/hex.h"

namespace millrace {
namespace {

using Kind = ObjectChecksum::Kind;

std::string Hex(const std::string& digest) {
  return HexEncode(std::span(reinterpret_cast<const uint8_t*>(digest.data()), digest.size()));
}

HttpHeaders HeadersOf(const std::map<std::string, std::string>& fields) {
  HttpHeaders headers;
  for (const auto& [name, value] : fields) headers.Add(name, value);
  return headers;
}

// The expected values are the check values of the algorithms: https://reveng.sourceforge.io/crc-catalogue/, RFC 1321.
TEST(DigestOf, GivesTheChecksumInOnePieceOrCombined) {
  const std::map<Kind, std::string> expected = {{Kind::kCrc32, "cbf43926"},
                                                {Kind::kCrc32c, "e3069283"},
                                                {Kind::kCrc64Nvme, "ae8b14860a799888"},
                                                {Kind::kMd5, "25f9e794323b453885f5181f1b624d0b"}};
  for (const auto& [kind, digest] : expected) {
    EXPECT_EQ(Hex(DigestOf(kind, AsBytes("123456789"))), digest) << ChecksumKindName(kind);
    if (kind == Kind::kMd5) continue;
    const uint64_t combined = CombineCrcs(kind, CrcOf(kind, AsBytes("1234")), CrcOf(kind, AsBytes("56789")), 5);
    EXPECT_EQ(Hex(CrcDigest(kind, combined)), digest) << ChecksumKindName(kind);
    EXPECT_EQ(CombineCrcs(kind, 0, combined, 9), combined) << ChecksumKindName(kind);
  }
}

TEST(WholeObjectChecksum, IsTheCheapestThatTheStoreTells) {
  const auto found = WholeObjectChecksum(HeadersOf({{"x-amz-checksum-crc64nvme", "rosUhgp5mIg="},
                                                    {"x-amz-checksum-crc32c", "4waSgw=="},
                                                    {"x-amz-checksum-type", "FULL_OBJECT"},
                                                    {"etag", "\"25f9e794323b453885f5181f1b624d0b\""}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::kCrc32c);
  EXPECT_EQ(Hex(found->digest), "e3069283");
  EXPECT_EQ(Crc32cHeader(0xe3069283), "4waSgw==");
  using Kind = ObjectChecksum::Kind;
  const ByteSpan digits = AsBytes("123456789");
  EXPECT_EQ(ChecksumHeaderName(Kind::kCrc32c), "x-amz-checksum-crc32c");
  EXPECT_EQ(ChecksumHeaderValue({Kind::kCrc32c, DigestOf(Kind::kCrc32c, digits)}), "4waSgw==");
  EXPECT_EQ(ChecksumHeaderName(Kind::kCrc64Nvme), "x-amz-checksum-crc64nvme");
  // The expected value comes from: printf 'ae8b14860a799888' | xxd -r -p | base64
  EXPECT_EQ(ChecksumHeaderValue({Kind::kCrc64Nvme, DigestOf(Kind::kCrc64Nvme, digits)}), "rosUhgp5mIg=");
  EXPECT_EQ(WholeObjectChecksum(HeadersOf({{"x-amz-checksum-crc64nvme", "rosUhgp5mIg="}}))->kind, Kind::kCrc64Nvme);
}

TEST(WholeObjectChecksum, IsNotThatOfParts) {
  EXPECT_FALSE(
      WholeObjectChecksum(HeadersOf({{"x-amz-checksum-crc32c", "4waSgw=="}, {"x-amz-checksum-type", "COMPOSITE"}})));
  EXPECT_FALSE(WholeObjectChecksum(HeadersOf({{"x-amz-checksum-crc32c", "4waSgw==-3"}})));
  EXPECT_FALSE(WholeObjectChecksum(HeadersOf({{"etag", "\"25f9e794323b453885f5181f1b624d0b-2\""}})));
}

TEST(CompositeChecksum, IsThatOfTheChecksumsOfParts) {
  const auto found =
      CompositeChecksum(HeadersOf({{"x-amz-checksum-crc32", "y/Q5Jg==-12"}, {"x-amz-checksum-type", "COMPOSITE"}}));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::kCrc32);
  EXPECT_EQ(Hex(found->digest), "cbf43926");
  EXPECT_EQ(found->parts, 12u);
  for (const char* other : {"y/Q5Jg==", "y/Q5Jg==-", "y/Q5Jg==-x", "y/Q5Jg==-0", "-3", "y/Q5-3"}) {
    EXPECT_FALSE(CompositeChecksum(HeadersOf({{"x-amz-checksum-crc32", other}, {"x-amz-checksum-type", "COMPOSITE"}})))
        << other;
  }
  EXPECT_FALSE(CompositeChecksum(HeadersOf({{"x-amz-checksum-crc32", "y/Q5Jg==-12"}})));
}

TEST(PartChecksum, IsToldInSoManyWords) {
  EXPECT_EQ(Hex(PartChecksum(HeadersOf({{"x-amz-checksum-crc32", "y/Q5Jg=="}, {"x-amz-checksum-type", "COMPOSITE"}}))
                    ->digest),
            "cbf43926");
  // Some stores send the checksum of the whole object with a range.
  EXPECT_FALSE(PartChecksum(HeadersOf({{"x-amz-checksum-crc32", "y/Q5Jg=="}, {"x-amz-checksum-type", "FULL_OBJECT"}})));
  EXPECT_FALSE(PartChecksum(HeadersOf({{"x-amz-checksum-crc32", "y/Q5Jg=="}})));
  EXPECT_FALSE(PartChecksum(HeadersOf({{"x-amz-checksum-crc32", "y/Q5Jg==-3"}, {"x-amz-checksum-type", "COMPOSITE"}})));
  EXPECT_FALSE(PartChecksum(HeadersOf({{"etag", "\"25f9e794323b453885f5181f1b624d0b\""}})));
}

TEST(WholeObjectChecksum, MayBeTheETag) {
  const std::string md5 = "\"25f9e794323b453885f5181f1b624d0b\"";
  EXPECT_EQ(WholeObjectChecksum(HeadersOf({{"etag", md5}}))->kind, Kind::kMd5);
  EXPECT_TRUE(WholeObjectChecksum(HeadersOf({{"etag", md5}, {"x-amz-server-side-encryption", "AES256"}})));
  EXPECT_FALSE(WholeObjectChecksum(HeadersOf({{"etag", md5}, {"x-amz-server-side-encryption", "aws:kms"}})));
  EXPECT_FALSE(
      WholeObjectChecksum(HeadersOf({{"etag", md5}, {"x-amz-server-side-encryption-customer-algorithm", "AES256"}})));
  for (const char* other :
       {"\"abc\"", "\"\"", "\"25f9e794323b453885f5181f1b624d0b00\"", "\"zzf9e794323b453885f5181f1b624d0b\""}) {
    EXPECT_FALSE(WholeObjectChecksum(HeadersOf({{"etag", other}}))) << other;
  }
  EXPECT_FALSE(WholeObjectChecksum({}));
}

TEST(WholeObjectChecksum, GarbledIsNone) {
  for (const char* value : {"", "4waSgw=", "!!!!", "4waSg4waSg=="}) {
    EXPECT_FALSE(WholeObjectChecksum(HeadersOf({{"x-amz-checksum-crc32c", value}}))) << value;
  }
}

}  // namespace
}  // namespace millrace
