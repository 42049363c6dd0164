#pragma once

#include <string>

#include "transfer/bulk_job.h"

namespace millrace::cli {

/// "copied 200 objects (12 without a checksum to verify)": how many were copied, and of how many nothing tells that the
/// bytes are right. "and 2 indexes", if some were carried over.
std::string CopiedText(const BulkReport& copied, uint64_t indexes);

}  // namespace millrace::cli
