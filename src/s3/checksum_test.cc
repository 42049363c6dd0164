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

HttpHeaders Headers(const std::map<std::string, std::string>& fields) {
  HttpHeaders headers;
  for (const auto& [name, value] : fields) headers.Add(name, value);
  return headers;
}

// The check values of the algorithms: https://reveng.sourceforge.io/crc-catalogue/, RFC 1321.
TEST(DigestStream, GivesTheChecksumOfWhatComes) {
  const std::map<Kind, std::string> expected = {{Kind::kCrc32, "cbf43926"},
                                                {Kind::kCrc32c, "e3069283"},
                                                {Kind::kCrc64Nvme, "ae8b14860a799888"},
                                                {Kind::kMd5, "25f9e794323b453885f5181f1b624d0b"}};
  for (const auto& [kind, digest] : expected) {
    DigestStream stream(kind);
    stream.Update(AsBytes("1234"));
    stream.Update({});
    stream.Update(AsBytes("56789"));
    EXPECT_EQ(Hex(stream.Finish()), digest) << ChecksumKindName(kind);
    EXPECT_EQ(Hex(DigestOf(kind, AsBytes("123456789"))), digest);
  }
}

TEST(WholeObjectChecksum, IsTheCheapestThatTheStoreTells) {
  const auto found = WholeObjectChecksum(Headers({{"x-amz-checksum-crc64nvme", "rosUhgp5mIg="},
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
  // printf 'ae8b14860a799888' | xxd -r -p | base64
  EXPECT_EQ(ChecksumHeaderValue({Kind::kCrc64Nvme, DigestOf(Kind::kCrc64Nvme, digits)}), "rosUhgp5mIg=");
  EXPECT_EQ(WholeObjectChecksum(Headers({{"x-amz-checksum-crc64nvme", "rosUhgp5mIg="}}))->kind, Kind::kCrc64Nvme);
}

TEST(WholeObjectChecksum, IsNotThatOfParts) {
  EXPECT_FALSE(
      WholeObjectChecksum(Headers({{"x-amz-checksum-crc32c", "4waSgw=="}, {"x-amz-checksum-type", "COMPOSITE"}})));
  EXPECT_FALSE(WholeObjectChecksum(Headers({{"x-amz-checksum-crc32c", "4waSgw==-3"}})));
  EXPECT_FALSE(WholeObjectChecksum(Headers({{"etag", "\"25f9e794323b453885f5181f1b624d0b-2\""}})));
}

TEST(WholeObjectChecksum, MayBeTheETag) {
  const std::string md5 = "\"25f9e794323b453885f5181f1b624d0b\"";
  EXPECT_EQ(WholeObjectChecksum(Headers({{"etag", md5}}))->kind, Kind::kMd5);
  EXPECT_TRUE(WholeObjectChecksum(Headers({{"etag", md5}, {"x-amz-server-side-encryption", "AES256"}})));
  EXPECT_FALSE(WholeObjectChecksum(Headers({{"etag", md5}, {"x-amz-server-side-encryption", "aws:kms"}})));
  EXPECT_FALSE(
      WholeObjectChecksum(Headers({{"etag", md5}, {"x-amz-server-side-encryption-customer-algorithm", "AES256"}})));
  for (const char* other :
       {"\"abc\"", "\"\"", "\"25f9e794323b453885f5181f1b624d0b00\"", "\"zzf9e794323b453885f5181f1b624d0b\""}) {
    EXPECT_FALSE(WholeObjectChecksum(Headers({{"etag", other}}))) << other;
  }
  EXPECT_FALSE(WholeObjectChecksum({}));
}

TEST(WholeObjectChecksum, GarbledIsNone) {
  for (const char* value : {"", "4waSgw=", "!!!!", "4waSg4waSg=="}) {
    EXPECT_FALSE(WholeObjectChecksum(Headers({{"x-amz-checksum-crc32c", value}}))) << value;
  }
}

}  // namespace
}  // namespace millrace
