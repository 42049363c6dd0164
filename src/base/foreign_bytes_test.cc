#include "base/foreign_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace millrace {
namespace {

TEST(ForeignBytes, AreNamed) {
  const auto named = [](std::string_view bytes) { return std::string(NameForeignBytes(AsBytes(bytes))); };
  EXPECT_NE(named("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n").find("git lfs pull"),
            std::string::npos);
  for (const char* page : {"<!DOCTYPE html>", "\n <html>", "\xef\xbb\xbf<HTML lang=en>", "<head>"})
    EXPECT_NE(named(page).find("HTML"), std::string::npos) << page;
  EXPECT_NE(named("<?xml version=\"1.0\"?><Error>").find("XML"), std::string::npos);
  for (const char* json : {"{\"error\": 1}", "[{\"a\":1}]"})
    EXPECT_NE(named(json).find("JSON"), std::string::npos) << json;
  EXPECT_NE(named("\x1f\x8b\x08").find("gzip"), std::string::npos);
  for (const char* text : {"/9j/4AAQSkZJRg", "iVBORw0KGgoAAAA", "data:image/png;base64,iVBO"})
    EXPECT_NE(named(text).find("base64"), std::string::npos) << text;
  EXPECT_NE(named("PK\3\4").find("ZIP"), std::string::npos);
  for (const char* other : {"", " ", "\xff\xd8\xff", "version 1", "hello", "{", "[1]", "<svg>"})
    EXPECT_EQ(named(other), "") << other;
}

}  // namespace
}  // namespace millrace
