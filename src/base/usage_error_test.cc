#include "base/usage_error.h"

#include <gtest/gtest.h>

#include "base/shell_word.h"

namespace millrace {
namespace {

TEST(UsageError, IsMarkedAlsoBehindAnAnnotation) {
  const absl::Status error = UsageError("--rate {} is negative", -1);
  EXPECT_EQ(ToStd(error.message()), "--rate -1 is negative");
  EXPECT_TRUE(IsUsage(error));
  EXPECT_TRUE(IsUsage(Annotate(error, "--volume x")));
  EXPECT_FALSE(IsUsage(absl::InvalidArgumentError("damaged")));
}

TEST(AsUsage, LeavesSuccessAlone) {
  EXPECT_TRUE(AsUsage(absl::OkStatus()).ok());
  EXPECT_EQ(*AsUsage(absl::StatusOr<int>(3)), 3);
  EXPECT_TRUE(IsUsage(AsUsage(absl::StatusOr<int>(absl::NotFoundError("no"))).status()));
}

TEST(ShellWords, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(ShellWords({"python", "it's", "a b", "", "--lr=0.1"}), "python 'it'\\''s' 'a b' '' --lr=0.1");
  EXPECT_EQ(ShellWords({}), "");
}

}  // namespace
}  // namespace millrace
