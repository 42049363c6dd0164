#include "net/http_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

std::vector<HttpHeaders::Field> Fields(const HttpHeaders& headers) {
  std::vector<HttpHeaders::Field> fields;
  for (const HttpHeaders::Field field : headers) fields.push_back(field);
  return fields;
}

TEST(HttpHeaders, KeepsTheOrderAndTheCaseOfNames) {
  HttpHeaders headers;
  EXPECT_THAT(Fields(headers), IsEmpty());
  headers.Add("Host", "h");
  headers.Add("x-empty", "");
  headers.Add("host", "other");
  EXPECT_THAT(Fields(headers), ElementsAre(Pair("Host", "h"), Pair("x-empty", ""), Pair("host", "other")));
  EXPECT_EQ(headers.size(), 3u);
  EXPECT_EQ(headers[2], HttpHeaders::Field("host", "other"));
}

TEST(HttpHeaders, FindsTheFirstWhateverTheCase) {
  HttpHeaders headers;
  headers.Add("Range", "bytes=0-1");
  headers.Add("RANGE", "bytes=2-3");
  EXPECT_EQ(headers.Find("range"), "bytes=0-1");
  EXPECT_EQ(headers.Find("rang"), std::nullopt);
  EXPECT_FALSE(headers.Has("ranges"));
}

TEST(HttpHeaders, SetReplacesAllOfAName) {
  HttpHeaders headers;
  headers.Add("a", "1");
  headers.Add("b", "2");
  headers.Add("A", "3");
  headers.Set("a", "4");
  EXPECT_THAT(Fields(headers), ElementsAre(Pair("b", "2"), Pair("a", "4")));
  headers.Remove("B");
  EXPECT_THAT(Fields(headers), ElementsAre(Pair("a", "4")));
  headers.Add("c", "5");
  EXPECT_THAT(Fields(headers), ElementsAre(Pair("a", "4"), Pair("c", "5")));
}

TEST(HttpHeaders, CopiesAreTheirOwn) {
  HttpHeaders headers;
  headers.Add("a", "1");
  const HttpHeaders copy = headers;
  headers.Set("a", "2");
  EXPECT_EQ(copy.Find("a"), "1");
  const HttpHeaders moved = std::move(headers);
  EXPECT_EQ(moved.Find("a"), "2");
}

TEST(HostAndPort, PutsBracketsAroundIpv6) {
  EXPECT_EQ(HostAndPort("host", 80), "host:80");
  EXPECT_EQ(HostAndPort("fd00::2", 9000), "[fd00::2]:9000");
}

TEST(HostHeader, HasThePortOnlyWhenItIsUnusual) {
  EXPECT_EQ(HostHeader({"::1", 443, true}), "[::1]");
  EXPECT_EQ(HostHeader({"h", 80, false}), "h");
  EXPECT_EQ(HostHeader({"h", 443, true}), "h");
  EXPECT_EQ(HostHeader({"h", 443, false}), "h:443");
  EXPECT_EQ(HostHeader({"h", 9000, true}), "h:9000");
  EXPECT_EQ(HostHeader({"::1", 9000, false}), "[::1]:9000");
}

}  // namespace
}  // namespace millrace
