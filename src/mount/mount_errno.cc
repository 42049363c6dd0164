#include "mount/mount_errno.h"

#include <cerrno>
#include <optional>
#include <string>

#include "s3/error.h"

namespace millrace {

namespace {

constexpr const char* kErrnoPayload = "millrace.mount/errno";

}  // namespace

absl::Status RefusedWith(int error, const std::string& message) {
  absl::Status status = absl::AbortedError(message);
  status.SetPayload(kErrnoPayload, absl::Cord(std::to_string(error)));
  return status;
}

int ErrnoOf(const absl::Status& status) {
  if (const auto own = status.GetPayload(kErrnoPayload)) return std::stoi(std::string(*own));
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return ENOENT;
    case absl::StatusCode::kAlreadyExists:
      return EEXIST;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return EACCES;
    case absl::StatusCode::kFailedPrecondition: {
      // S3 also refuses objects in an archive so, not only those that have changed.
      const std::string code = S3CodeOf(status);
      return code.empty() || code == "PreconditionFailed" ? ESTALE : EACCES;
    }
    case absl::StatusCode::kCancelled:
      return EINTR;
    case absl::StatusCode::kInvalidArgument:
      return EINVAL;
    case absl::StatusCode::kResourceExhausted:
      return ENOMEM;
    case absl::StatusCode::kOutOfRange:  // it has become shorter, in a store without ETags
      return ESTALE;
    default:
      return EIO;
  }
}

int ErrnoOfChange(const absl::Status& status) {
  const int error = ErrnoOf(status);
  return error == EACCES ? EROFS : error;
}

}  // namespace millrace
