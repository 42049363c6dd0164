#pragma once

#include <optional>
#include <stop_token>

#include "base/status.h"
#include "pack/pack.h"
#include "store/stores.h"

namespace millrace {

/// Checks a destination before the source is read, as far as its contents and the options tell, for sources that take
/// long to read (options.origin names the source). Changes nothing.
///
/// Returns the report if this pack is done already; nullopt if only Pack() can tell. AlreadyExists and
/// FailedPrecondition, in the words of Pack(), if it would refuse the destination with any samples. The reasons are
/// objects that belong to no data set, and, without options.force, another data set or job. Pack() checks
/// options.fields and options.classes.
absl::StatusOr<std::optional<PackReport>> PreflightDestination(const Location& destination, const PackOptions& options);

}  // namespace millrace
