#pragma once

#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pipeline/loader.h"

namespace millrace {

/// The memory of an array of a batch by its name in the declared shapes; empty where the batch has none.
ByteSpan ArrayOf(const Batch& batch, std::string_view name);

/// Whether the batch has one of the declared shapes: each of its arrays is as large as declared, and it has no others.
/// Internal, naming the array, where it is not: a program that was compiled for the shapes would be compiled again, or
/// read beyond the memory.
absl::Status CheckShape(const std::vector<BatchShape>& declared, const Batch& batch);

}  // namespace millrace
