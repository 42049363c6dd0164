// These tests write in place of one version of an object, and of no other.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "store/blocking.h"
#include "store/testing/contract.h"

namespace millrace {

TEST_P(StoreContract, IfMatchReplacesThatVersionOnly) {
  PutText("k", "first");
  const std::string seen = HeadBlocking(store(), "k")->etag;
  PutOptions replace;
  replace.if_match = seen;
  EXPECT_EQ(store().traits().holds_if_match, !place_->is_folder());
  if (!store().traits().holds_if_match) {
    EXPECT_EQ(PutBlocking(store(), "k", AsBytes("x"), replace).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(store().Write("k", replace).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Contents("k"), "first");
    return;
  }
  const auto second = PutBlocking(store(), "k", AsBytes("second"), replace);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Contents("k"), "second");
  const auto third = PutBlocking(store(), "k", AsBytes("third"), replace);
  EXPECT_EQ(third.status().code(), absl::StatusCode::kFailedPrecondition) << third.status();
  EXPECT_THAT(ToStd(third.status().message()), ::testing::StartsWith(store().Uri("k")));
  EXPECT_EQ(Contents("k"), "second");
  const auto nothing = PutBlocking(store(), "gone", AsBytes("x"), replace);
  EXPECT_FALSE(nothing.ok());
  EXPECT_EQ(Contents("gone").substr(0, 5), "error");
  replace.only_if_absent = true;
  EXPECT_EQ(PutBlocking(store(), "k", AsBytes("x"), replace).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store().Write("k", replace).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(StoreContract, AWriterWithIfMatchReplacesThatVersionOnly) {
  if (!store().traits().holds_if_match) {
    PutOptions refused;
    refused.if_match = "e";
    EXPECT_EQ(store().Write("k", refused).status().code(), absl::StatusCode::kInvalidArgument);
    return;
  }
  // The larger one needs several parts of an upload.
  for (const size_t size : {size_t{6}, size_t{9} << 20}) {
    PutText("k", "first");
    PutOptions replace;
    replace.if_match = HeadBlocking(store(), "k")->etag;
    const std::string text(size, 's');
    const auto write = [&]() -> absl::Status {
      ASSIGN_OR_RETURN(const auto writer, store().Write("k", replace));
      RETURN_IF_ERROR(writer->Append(AsBytes(text)));
      return writer->Commit().status();
    };
    const absl::Status replaced = write();
    EXPECT_TRUE(replaced.ok()) << replaced;
    EXPECT_TRUE(Contents("k") == text);
    const absl::Status changed = write();
    EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition) << changed;
    PutText("k", "another");
    EXPECT_EQ(write().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(Contents("k"), "another");
  }
}

TEST_P(StoreContract, AVersionIsDeletedAndNoOther) {
  PutText("k", "first");
  const std::string first = HeadBlocking(store(), "k")->etag;
  PutText("k", "second one");
  const absl::Status changed = DeleteVersionBlocking(store(), "k", first);
  EXPECT_EQ(changed.code(), absl::StatusCode::kFailedPrecondition) << changed;
  EXPECT_THAT(ToStd(changed.message()), ::testing::StartsWith(store().Uri("k")));
  EXPECT_EQ(Contents("k"), "second one");
  EXPECT_EQ(DeleteVersionBlocking(store(), "k", "").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DeleteVersionBlocking(store(), "", first).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(DeleteVersionBlocking(store(), "k", HeadBlocking(store(), "k")->etag).ok());
  EXPECT_EQ(Contents("k").substr(0, 5), "error");
  EXPECT_TRUE(DeleteVersionBlocking(store(), "k", first).ok()) << "it does not exist";
}

}  // namespace millrace
