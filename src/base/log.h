#pragma once

#include <string_view>

/// Writes diagnostics to stderr. This is the only singleton of the project. Never log credentials, signatures or
/// presigned URLs; never log an error that is also returned. MILLRACE_LOG=debug|info|warning|error|off sets the level
/// (default: warning).

namespace millrace {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Returns true when messages of this level are written; guard expensive formatting with it.
bool LogEnabled(LogLevel level);

/// Writes one line, on a terminal without control characters. `module` is the folder under src/, e.g. "s3".
/// Thread-safe.
void Log(LogLevel level, std::string_view module, std::string_view message);

}  // namespace millrace
