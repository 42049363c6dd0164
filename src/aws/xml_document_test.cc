#include "aws/xml_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(XmlDocument, HasElementsAndText) {
  const auto document = XmlDocument::Parse(
      "<?xml version=\"1.0\"?><!-- x --><Answer xmlns=\"n\"><id>7</id><set><item><key> </key></item><other/>"
      "<item><key>a&amp;b</key></item></set></Answer>");
  ASSERT_TRUE(document.ok()) << document.status();
  const XmlElement root = document->root();
  EXPECT_EQ(root.name(), "Answer");
  EXPECT_EQ(root.Text("id"), "7");
  std::vector<std::string> keys;
  for (const XmlElement& item : root.Child("set").Children("item")) keys.emplace_back(item.Text("key"));
  EXPECT_THAT(keys, ::testing::ElementsAre(" ", "a&b"));
}

TEST(XmlDocument, WhatIsAbsentIsEmpty) {
  const auto document = XmlDocument::Parse("<a/>");
  ASSERT_TRUE(document.ok()) << document.status();
  const XmlElement none = document->root().Child("b").Child("c");
  EXPECT_TRUE(document->root());
  EXPECT_FALSE(none);
  EXPECT_EQ(none.name(), "");
  EXPECT_EQ(none.Text("d"), "");
  EXPECT_THAT(none.Children("d"), ::testing::IsEmpty());
}

TEST(XmlDocument, OtherTextIsRefused) {
  for (const char* text : {"", "{}", "<a>", "<a></b>"})
    EXPECT_TRUE(absl::IsInvalidArgument(XmlDocument::Parse(text).status())) << text;
}

TEST(XmlDocument, DeepNestingEnds) {
  constexpr int kDepth = 1'000'000;
  std::string text;
  for (int i = 0; i < kDepth; ++i) text += "<a>";
  for (int i = 0; i < kDepth; ++i) text += "</a>";
  EXPECT_TRUE(XmlDocument::Parse(text).ok());
}

}  // namespace
}  // namespace millrace
