#pragma once

namespace millrace {

/// Lets this process have as many files and connections open as the system lets it: the lower limit that it begins with
/// is for programs that use select(), which Millrace does not. Call it once, before there are threads.
void AllowManyFiles();

/// Takes that back, between fork and exec or before exec: the program that follows may use select(), or go through all
/// numbers up to the limit. Does nothing if AllowManyFiles was not called. Safe after fork. Programs that
/// are started with posix_spawn (child_process.h) keep the raised limit.
void RestoreFileLimit();

}  // namespace millrace
