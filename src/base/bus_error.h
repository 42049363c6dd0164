#pragma once

#include <string_view>

#include "base/bytes.h"

/// An access to a mapped file that has become shorter, or whose disk fails, ends the process by SIGBUS. These make it
/// end with a message that names the file. Thread-safe.

namespace millrace {

/// From now on, `mapping` shows the file `path`. The first call installs a handler of SIGBUS for the process. After its
/// message, the handler that was installed before runs. It names at most 64 files at a time; others get no message.
void ExplainBusErrorsIn(ByteSpan mapping, std::string_view path);

/// Call this before the mapping ends.
void ForgetBusErrorsIn(ByteSpan mapping);

}  // namespace millrace
