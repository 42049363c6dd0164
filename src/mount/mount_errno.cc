#include "mount/mount_errno.h"

#include <cerrno>
#include <string>

#include "s3/error.h"

namespace millrace {

int ErrnoOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return ENOENT;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return EACCES;
    case absl::StatusCode::kFailedPrecondition: {
      // Of S3 others than a changed object are refused so, too: those in an archive.
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

}  // namespace millrace
