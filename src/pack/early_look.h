#pragma once

#include <optional>
#include <stop_token>

#include "base/status.h"
#include "pack/pack.h"
#include "store/stores.h"

namespace millrace {

/// Judges a destination before the source is read, as far as what is there and the options tell, for sources that take
/// long to read: options.origin says what that is. Touches nothing.
///
/// The report of a pack that is done, where it is this one; nullopt where Pack() has to tell. AlreadyExists and
/// FailedPrecondition, in the words of Pack(), for what it would refuse whatever is in the samples: objects that are no
/// part of a data set, and, without options.force, another data set or job. What options.fields and options.classes
/// come to is left to Pack().
absl::StatusOr<std::optional<PackReport>> LookAtDestination(const Location& destination, const PackOptions& options);

}  // namespace millrace
