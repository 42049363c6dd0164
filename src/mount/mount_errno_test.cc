#include "mount/mount_errno.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "s3/error.h"

namespace millrace {
namespace {

TEST(ErrnoOf, SaysWhatProgramsExpect) {
  using Code = absl::StatusCode;
  for (const auto& [code, expected] : {std::pair(Code::kNotFound, ENOENT),
                                       {Code::kPermissionDenied, EACCES},
                                       {Code::kUnauthenticated, EACCES},
                                       {Code::kFailedPrecondition, ESTALE},
                                       {Code::kOutOfRange, ESTALE},
                                       {Code::kCancelled, EINTR},
                                       {Code::kInvalidArgument, EINVAL},
                                       {Code::kResourceExhausted, ENOMEM},
                                       {Code::kDeadlineExceeded, EIO},
                                       {Code::kUnavailable, EIO},
                                       {Code::kDataLoss, EIO},
                                       {Code::kAborted, EIO},
                                       {Code::kAlreadyExists, EEXIST},
                                       {Code::kUnimplemented, EIO},
                                       {Code::kInternal, EIO},
                                       {Code::kUnknown, EIO}}) {
    EXPECT_EQ(ErrnoOf(absl::Status(code, "x")), expected) << code;
  }
}

TEST(ErrnoOf, WhatTheMountRefusesHasItsErrno) {
  EXPECT_EQ(ErrnoOf(RefusedWith(EXDEV, "x")), EXDEV);
  EXPECT_EQ(ErrnoOf(RefusedWith(ENOTEMPTY, "x")), ENOTEMPTY);
}

TEST(ErrnoOf, AChangeThatTheStoreRefusesIsNoQuestionOfModes) {
  EXPECT_EQ(ErrnoOfChange(absl::PermissionDeniedError("x")), EROFS);
  EXPECT_EQ(ErrnoOfChange(absl::UnauthenticatedError("x")), EROFS);
  EXPECT_EQ(ErrnoOfChange(RefusedWith(EEXIST, "x")), EEXIST);
  EXPECT_EQ(ErrnoOfChange(absl::UnavailableError("x")), EIO);
}

TEST(ErrnoOf, WhatIsArchivedHasNotChanged) {
  absl::Status status = absl::FailedPreconditionError("x");
  SetS3Code(&status, "InvalidObjectState");
  EXPECT_EQ(ErrnoOf(status), EACCES);
  SetS3Code(&status, "PreconditionFailed");
  EXPECT_EQ(ErrnoOf(status), ESTALE);
}

}  // namespace
}  // namespace millrace
