#include "service/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

using ::testing::ElementsAre;

TEST(HostListTest, AsSlurmWritesIt) {
  EXPECT_THAT(*ExpandHostList("one"), ElementsAre("one"));
  EXPECT_THAT(*ExpandHostList("one,two.example"), ElementsAre("one", "two.example"));
  EXPECT_THAT(*ExpandHostList("n[01-03,7],gpu2"), ElementsAre("n01", "n02", "n03", "n7", "gpu2"));
  EXPECT_THAT(*ExpandHostList("n[9-11]-ib"), ElementsAre("n9-ib", "n10-ib", "n11-ib"));
  EXPECT_THAT(*ExpandHostList("r[1-2]n[1-2]"), ElementsAre("r1n1", "r1n2", "r2n1", "r2n2"));
  EXPECT_THAT(*ExpandHostList("[1-2]"), ElementsAre("1", "2"));
}

TEST(HostListTest, WhatIsNone) {
  for (const char* text : {"", ",", "a,", "n[1-", "n[1-2", "n1]", "n[]", "n[2-1]", "n[a-b]", "n[1-2-3]", "n[0-65536]",
                           "a b", "n[1-1000]m[1-1000]", "n[1-[2]]", "http://x"}) {
    EXPECT_EQ(ExpandHostList(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(HostListTest, NamesAreBounded) {
  const std::string longest(250, 'n');
  const std::string zeros(255, '0');
  EXPECT_EQ(ExpandHostList(longest + "[0-9]")->size(), 10);
  for (const std::string& text : {longest + "n[0-65535]nnnnnn", std::string(1'000'000, 'n') + "[0-65535]",
                                  "[0" + zeros + "-65535]", "[" + zeros + "-65535][" + zeros + "-0]n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ExpandHostList(text).status()));
  }
}

TEST(HostListTest, CommasWithinBracketsDoNotCut) {
  EXPECT_THAT(SplitOutsideBrackets("slurm:n[1,2]:7,h:1"), ElementsAre("slurm:n[1,2]:7", "h:1"));
  EXPECT_THAT(SplitOutsideBrackets(""), ElementsAre(""));
  EXPECT_THAT(SplitOutsideBrackets("a,,b"), ElementsAre("a", "", "b"));
}

}  // namespace
}  // namespace millrace
