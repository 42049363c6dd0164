#pragma once

#include <string_view>

#include "base/status.h"

namespace millrace {

/// Explains the `status` of a read that an index asked for. If it says that an object has been replaced or is gone, the
/// result also says that the data set has changed since it was indexed, and what to do. Every other status is returned
/// as it is.
absl::Status SayIfChanged(absl::Status status, std::string_view dataset_uri);

}  // namespace millrace
