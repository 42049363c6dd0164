#include "pack/class_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST(ClassMap, Lines) {
  for (const char* text : {"dog\ncat\n", "dog\r\n\r\ncat", "\ndog\n\ncat\n\n"}) {
    const auto map = ParseClassMap(text);
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_THAT(*map, ElementsAre(Pair("cat", 1), Pair("dog", 0))) << text;
  }
  EXPECT_THAT(*ParseClassMap("grey wolf \n"), ElementsAre(Pair("grey wolf ", 0))) << "names are taken as they are";
}

TEST(ClassMap, Json) {
  const auto map = ParseClassMap(R"( {"cat": 281, "tabby": 281, "größe": 0} )");
  ASSERT_TRUE(map.ok()) << map.status();
  EXPECT_THAT(*map, ElementsAre(Pair("cat", 281), Pair("größe", 0), Pair("tabby", 281)));
}

TEST(ClassMap, Refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "names no class"},
      {"\n\n", "names no class"},
      {"{}", "names no class"},
      {"cat\ndog\ncat\n", "line 3"},
      {"{\"cat\": 1, \"cat\": 2}", "\"cat\" is there twice"},
      {"{\"cat\": -1}", "\"cat\" has -1"},
      {"{\"cat\": 1.5}", "\"cat\" has 1.5"},
      {"{\"cat\": \"1\"}", "\"cat\" has \"1\""},
      {"{\"cat\": {\"x\": 1}}", "\"cat\" has object"},
      {"{\"cat\": 1", "JSON"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseClassMap(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.ToString(), HasSubstr(message)) << text;
  }
}

// Messages do not repeat a foreign file at length, and it may be nested to any depth.
TEST(ClassMap, Excesses) {
  constexpr size_t kDeep = 400'000;
  const std::string deep = "{\"cat\": " + std::string(kDeep, '[') + std::string(kDeep, ']') + "}";
  EXPECT_THAT(ParseClassMap(deep).status().ToString(), HasSubstr("\"cat\" has array"));
  const std::string text(3000, 'x');
  for (const std::string& map : {"{\"cat\": \"" + text + "\"}", "{\"" + text + "\": -1}",
                                 "{\"" + text + "\": 1, \"" + text + "\": 1}", text + "\n" + text}) {
    const absl::Status status = ParseClassMap(map).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(status.message().size(), 200u);
  }
}

}  // namespace
}  // namespace millrace
