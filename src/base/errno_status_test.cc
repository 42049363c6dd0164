#include "base/errno_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ErrnoStatus, MapsEachErrnoToACode) {
  using enum absl::StatusCode;
  const std::map<int, absl::StatusCode> table{
      {ENOENT, kNotFound},          {ENOTDIR, kNotFound},         {ELOOP, kNotFound},
      {EACCES, kPermissionDenied},  {EPERM, kPermissionDenied},   {EROFS, kPermissionDenied},
      {EEXIST, kAlreadyExists},     {ENOSPC, kResourceExhausted}, {EDQUOT, kResourceExhausted},
      {EFBIG, kResourceExhausted},  {EMFILE, kResourceExhausted}, {ENFILE, kResourceExhausted},
      {ENOMEM, kResourceExhausted}, {EISDIR, kInvalidArgument},   {ENAMETOOLONG, kInvalidArgument},
      {EINVAL, kInvalidArgument},   {EILSEQ, kInvalidArgument},   {EIO, kUnavailable},
      {ESTALE, kUnavailable},       {ETIMEDOUT, kUnavailable},
  };
  for (int error = 1; error < 4096; ++error) {  // the kernel has no greater ones
    const absl::Status status = ErrnoStatus(error, "/the/file", "reading");
    const auto row = table.find(error);
    EXPECT_EQ(status.code(), row == table.end() ? kUnknown : row->second) << error;
    EXPECT_THAT(std::string(status.message()), StartsWith("/the/file: reading failed: ")) << error;
  }
  EXPECT_THAT(std::string(ErrnoStatus(ENOSPC, "/x", "writing").message()), HasSubstr("free space"));
}

}  // namespace
}  // namespace millrace
