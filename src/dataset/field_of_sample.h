#pragma once

#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "dataset/index.h"

namespace millrace {

/// Returns the value of a field, wherever its bytes are: in the sample's `span`, in the index, or made of the stored
/// ones in `scratch`. The view is valid as long as these three. DataLoss, with the field's name, if the stored bytes
/// are not a valid value.
absl::StatusOr<ByteSpan> ValueOf(const IndexedField& field, ByteSpan span, std::string* scratch);

}  // namespace millrace
