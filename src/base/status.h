#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

/// Errors are absl::Status. Exceptions never cross a module, a thread or a C callback. A message names the object, the
/// operation and, if there is one, the remedy. Codes have fixed meanings in Millrace:
///
///   NotFound            the bucket, object or file does not exist
///   PermissionDenied    the store refuses these credentials
///   Unauthenticated     there are no credentials, or the store does not know them
///   FailedPrecondition  the object is not the one that was indexed (ETag) or changes all the time, or a position
///                       belongs to other data
///   DataLoss            bytes are damaged: checksum, truncated shard, undecodable sample
///   InvalidArgument     the caller's options or input make no sense; nothing was attempted
///   AlreadyExists       a conditional write lost, a bucket exists
///   ResourceExhausted   a budget, disk or quota is too small; the message says how much is needed
///   Unavailable         retries were used up; trying later may help
///   Cancelled           the owner stopped the operation
///   OutOfRange          a range of bytes is beyond the end of the object
///   Aborted             the reader of our output is gone, so that no message reaches it (the CLI)
///   Internal            a fault of Millrace, or of a library that should have worked: report it
///   Unknown             the operating system failed in a way that no other code describes
///   Unimplemented       the store does not offer this; the caller has another way
///
/// DeadlineExceeded is not used.

namespace millrace {

/// Debian builds Abseil with a string_view of its own, so views are converted at its calls (a std::string needs no
/// help).
inline absl::string_view ToAbsl(std::string_view text) {
  return {text.data(), text.size()};
}
inline std::string_view ToStd(absl::string_view text) {
  return {text.data(), text.size()};
}

/// Returns the same code and payloads with `context: ` in front of the message. OK stays OK.
inline absl::Status Annotate(const absl::Status& status, std::string_view context) {
  if (status.ok()) return status;
  std::string message(context);
  message.append(": ").append(ToStd(status.message()));
  absl::Status annotated(status.code(), message);
  status.ForEachPayload(
      [&](absl::string_view type, const absl::Cord& payload) { annotated.SetPayload(type, payload); });
  return annotated;
}

}  // namespace millrace

#define MILLRACE_CONCAT_INNER(a, b) a##b
#define MILLRACE_CONCAT(a, b) MILLRACE_CONCAT_INNER(a, b)

/// Returns from the enclosing function when `expr` (a Status) is an error.
#define RETURN_IF_ERROR(expr)                                                        \
  do {                                                                               \
    if (absl::Status status_macro = (expr); !status_macro.ok()) return status_macro; \
  } while (false)

/// With ASSIGN_OR_RETURN(auto x, F()), `lhs` gets the value of a StatusOr, or the enclosing function returns its error.
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_INNER(MILLRACE_CONCAT(status_or_, __COUNTER__), lhs, expr)
#define ASSIGN_OR_RETURN_INNER(tmp, lhs, expr)   \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()
