#include "cli/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace millrace::cli {
namespace {

TEST(JsonText, ValuesOfAllTypes) {
  EXPECT_EQ(JsonObject({}).text(), "{}");
  EXPECT_EQ(JsonArray({}).text(), "[]");
  EXPECT_EQ(JsonObject({{"a", 1}, {"b", UINT64_MAX}, {"c", int64_t{-7}}, {"d", true}, {"e", nullptr}}).Line(),
            "{\"a\":1,\"b\":18446744073709551615,\"c\":-7,\"d\":true,\"e\":null}\n");
  EXPECT_EQ(JsonArray({"x", std::string("y"), std::string_view("z"), std::vector<std::string>{"p", "q"},
                       std::vector<std::string>{}, JsonObject{{"k", JsonArray{1, 2}}}})
                .text(),
            R"(["x","y","z",["p","q"],[],{"k":[1,2]}])");
  EXPECT_EQ(JsonArray({0.0, 1.0, 0.1, 1e300, -2.5, std::numeric_limits<double>::infinity(), std::nan("")}).text(),
            "[0.0,1.0,0.1,1e+300,-2.5,null,null]");
}

TEST(JsonText, LinesOfCommandsNameTheirSchema) {
  EXPECT_EQ(JsonObject({{"key", "a"}, {"size", 1}}).Versioned("uploads.ls"),
            "{\"schema\":\"millrace.uploads.ls/1\",\"key\":\"a\",\"size\":1}\n");
  EXPECT_EQ(JsonObject({}).Versioned("ls"), "{\"schema\":\"millrace.ls/1\"}\n");
}

TEST(JsonText, StringsMayHoldAnyBytes) {
  EXPECT_EQ(Json("a\"b\\c/\n\t\x01\x7f").text(), "\"a\\\"b\\\\c/\\n\\u0009\\u0001\x7f\"");
  EXPECT_EQ(Json(std::string_view("\0", 1)).text(), "\"\\u0000\"");
  EXPECT_EQ(Json("gr\xc3\xb6\xc3\x9f").text(), "\"gr\xc3\xb6\xc3\x9f\"");
  EXPECT_EQ(Json("\xff"
                 "a\xc3")
                .text(),
            "\"\xef\xbf\xbd"
            "a\xef\xbf\xbd\"");
}

struct Inner {
  int first = 1;
  int last() const { return 2; }
};

JsonObject JsonOf(const Inner& inner) {
  return JSON_OF(inner.first);
}

TEST(JsonText, MembersAreCalledAsTheirExpressions) {
  const Inner inner;
  const Inner* const pointer = &inner;
  const std::vector<std::string> words = {"a, b"};
  EXPECT_EQ(JSON_OF(inner.first, pointer->last(), words, Named("GET, (\"", words.size()), inner,
                    Named("nested", JSON_OF(inner.last(), std::vector<Inner>(1).front().first)))
                .text(),
            R"({"first":1,"last":2,"words":["a, b"],"GET, (\"":1,"inner":{"first":1},"nested":{"last":2,"first":1}})");
}

TEST(JsonText, MembersCanBeAddedLater) {
  JsonObject object{{"a", 1}};
  JsonArray list;
  list.Add(1).Add("x");
  object.Add("b", list).Add("c", nullptr);
  EXPECT_EQ(object.text(), R"({"a":1,"b":[1,"x"],"c":null})");
}

}  // namespace
}  // namespace millrace::cli
