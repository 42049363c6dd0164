#include "s3/etag.h"

#include <gtest/gtest.h>

#include "s3/key_order.h"

namespace millrace {
namespace {

TEST(ETag, Quotes) {
  EXPECT_EQ(StripETagQuotes("\"abc\""), "abc");
  EXPECT_EQ(StripETagQuotes("abc"), "abc");
  EXPECT_EQ(StripETagQuotes("W/\"abc\""), "W/\"abc\"");
  EXPECT_EQ(ETagOfBytes("W/\"abc\""), "abc");
  EXPECT_EQ(ETagOfBytes("\"abc\""), "abc");
  EXPECT_EQ(ETagOfBytes("W/abc"), "W/abc");
  EXPECT_EQ(StripETagQuotes("\""), "\"");
  EXPECT_EQ(StripETagQuotes("\"\""), "");
  EXPECT_EQ(IfMatchValue("abc"), "\"abc\"");
  EXPECT_EQ(IfMatchValue("W/\"abc\""), "W/\"abc\"");
}

TEST(MultipartETag, IsTheHashOfHashes) {
  // The expected value comes from:
  // printf '900150983cd24fb0d6963f7d28e17f72d41d8cd98f00b204e9800998ecf8427e' | xxd -r -p | md5sum
  EXPECT_EQ(MultipartETag({"900150983cd24fb0d6963f7d28e17f72", "d41d8cd98f00b204e9800998ecf8427e"}),
            "fdf1fdf1567f6942ffe1743f1e72301e-2");
  EXPECT_EQ(MultipartETag({"not an md5"}), "");
  EXPECT_EQ(MultipartETag({"900150983cd24fb0d6963f7d28e17f7Z"}), "");
  EXPECT_EQ(MultipartETag({"900150983cd24fb0d6963f7d28e17f"}), "");
}

TEST(AfterPrefix, IsTheLeastGreaterString) {
  EXPECT_EQ(AfterPrefix("a/"), "a0");
  EXPECT_EQ(AfterPrefix("a\x7f"), "a\x80");
  EXPECT_EQ(AfterPrefix("a\xff"), "b");
  EXPECT_EQ(AfterPrefix("\xff\xff"), std::nullopt);
  EXPECT_EQ(AfterPrefix(""), std::nullopt);
}

}  // namespace
}  // namespace millrace
