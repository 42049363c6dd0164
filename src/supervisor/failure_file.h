#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

/// Describes the file in which a training program says why it failed, and of which SageMaker shows the first 1,024
/// characters.

namespace millrace {

/// Removes what an earlier attempt has written.
void ClearFailure(const std::string& path);
/// Returns the beginning of what the program has written; "" if there is nothing.
std::string ReadFailure(const std::string& path);
/// Writes it unless the program has: a sentence, and then as much of the end of the program's output as fits.
absl::Status WriteFailure(const std::string& path, std::string_view sentence, std::string_view output);

}  // namespace millrace
