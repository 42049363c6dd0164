#include "base/errno_status.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace millrace {

absl::Status ErrnoStatus(int error, std::string_view name, std::string_view operation) {
  const auto message = [&](std::string_view remedy) {
    return fmt::format("{}: {} failed: {}{}", name, operation, std::generic_category().message(error), remedy);
  };
  switch (error) {
    case ENOENT:
    case ELOOP:
      return absl::NotFoundError(message(""));
    case ENOTDIR:
      return absl::NotFoundError(message(" (a part of the path is a file, not a folder)"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message("; check the owner and mode of the file and its folders"));
    case EROFS:
      return absl::PermissionDeniedError(message("; choose a place that can be written"));
    case EEXIST:
      return absl::AlreadyExistsError(message(""));
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message("; free space there or choose another place"));
    case EFBIG:
      return absl::ResourceExhaustedError(
          message("; raise the limit of the file size (ulimit -f) or choose another file system"));
    case EMFILE:
    case ENFILE:
      return absl::ResourceExhaustedError(message("; raise the limit of open files (ulimit -n)"));
    case ENOMEM:
      return absl::ResourceExhaustedError(message("; free memory"));
    case EISDIR:
      return absl::InvalidArgumentError(message("; a folder cannot hold a file and a folder of one name"));
    case ENAMETOOLONG:
    case EINVAL:
    case EILSEQ:
      return absl::InvalidArgumentError(message("; this file system cannot hold such a name"));
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
      return absl::UnavailableError(message("; check the disk or the network mount"));
    default:
      return absl::UnknownError(message(""));
  }
}

}  // namespace millrace
