#include "job/code_checkout.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(ParseCodeSource, TakesUrlsWithAndWithoutARef) {
  const auto parsed = [](std::string_view text) {
    const absl::StatusOr<CodeSource> code = ParseCodeSource(text);
    return code.ok() ? code->url + " " + code->ref : "error";
  };
  EXPECT_EQ(parsed("https://github.com/me/train@v1.2"), "https://github.com/me/train v1.2");
  EXPECT_EQ(parsed("https://me:secret@host/train"), "https://me:secret@host/train ");
  EXPECT_EQ(parsed("https://me:secret@host/train@main"), "https://me:secret@host/train main");
  EXPECT_EQ(parsed("git@host:me/train"), "git@host:me/train ");
  EXPECT_EQ(parsed("git@host:me/train@0a1b"), "git@host:me/train 0a1b");
  EXPECT_EQ(parsed("/srv/train@x/y"), "/srv/train x/y");
  for (const char* text : {"", "@main", "-x", "https://host/x@", "https://host/x@-f"}) EXPECT_EQ(parsed(text), "error");
}

}  // namespace
}  // namespace millrace
