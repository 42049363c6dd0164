#include "dataset/changed_object.h"

#include <fmt/format.h>

#include "s3/error.h"

namespace millrace {

absl::Status SayIfChanged(absl::Status status, std::string_view dataset_uri) {
  // S3 may refuse for another reason, such as an object that is archived, or a bucket that is not there. That is no
  // change.
  const std::string code = S3CodeOf(status);
  const bool replaced = absl::IsFailedPrecondition(status) && (code.empty() || code == "PreconditionFailed");
  const bool gone = absl::IsNotFound(status) && (code.empty() || code == "NoSuchKey");
  if (!replaced && !gone) return status;
  return Annotate(status,
                  fmt::format("{} has changed since it was indexed; run: millrace index {}", dataset_uri, dataset_uri));
}

}  // namespace millrace
