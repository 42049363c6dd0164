#include "base/json_members.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {
namespace {

const nlohmann::ordered_json kObject = {{"text", "a"}, {"flag", true},      {"number", 7u},
                                        {"less", -1},  {"crc", "0000002a"}, {"list", {1, 2}}};

TEST(JsonMembersTest, TakesMembersOfTheirTypes) {
  std::string text;
  bool flag = false;
  uint64_t number = 0;
  uint32_t crc = 0;
  std::vector<int> list;
  const bool whole = JsonMembers(kObject)
                         .Take("text", &text)
                         .Take("flag", &flag)
                         .Take("number", &number)
                         .TakeCrc("crc", &crc)
                         .TakeEach("list",
                                   [&list](const auto& entry) {
                                     list.push_back(entry);
                                     return true;
                                   })
                         .whole();
  EXPECT_TRUE(whole);
  EXPECT_EQ(text, "a");
  EXPECT_TRUE(flag);
  EXPECT_EQ(number, 7u);
  EXPECT_EQ(crc, 42u);
  EXPECT_EQ(list, (std::vector<int>{1, 2}));
}

TEST(JsonMembersTest, TakesNothingAfterAMemberThatIsNotThere) {
  std::string text = "before";
  uint64_t number = 5;
  for (const char* name : {"absent", "text", "less"}) {
    EXPECT_FALSE(JsonMembers(kObject).Take(name, &number).Take("text", &text).whole()) << name;
  }
  EXPECT_EQ(number, 5u);
  EXPECT_EQ(text, "before");
  uint32_t crc = 0;
  EXPECT_FALSE(JsonMembers(kObject).TakeCrc("text", &crc).whole());
  EXPECT_FALSE(JsonMembers(kObject).TakeEach("text", [](const auto&) { return true; }).whole());
  EXPECT_FALSE(JsonMembers(kObject).TakeEach("list", [](const auto&) { return false; }).whole());
  EXPECT_FALSE(JsonMembers(nlohmann::ordered_json::array()).whole());
}

}  // namespace
}  // namespace millrace
