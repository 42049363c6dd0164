#pragma once

#include <string>

#include "transfer/bulk_job.h"

namespace millrace::cli {

/// "copied 200 objects (12 without a checksum to verify)": how many were copied, and of how many nothing tells that the
/// bytes are right.
std::string CopiedText(const BulkReport& copied);

}  // namespace millrace::cli
