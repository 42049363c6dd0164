#pragma once

#include <memory>
#include <stop_token>

#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"

namespace millrace {

/// An index of raw objects that is made of their listing alone, in memory: for a caller that reads everything once, and
/// would only read it a second time to learn the checksums. Its CRCs are 0 and mean nothing. NotFound when the data are
/// something else, or more than a million objects (30 MB of memory): then an index is built. Other errors are those of
/// SampleObjects and IndexWriter.
absl::StatusOr<std::unique_ptr<Index>> ListRawObjects(const DatasetPlace& data, const std::stop_token& stop);

}  // namespace millrace
