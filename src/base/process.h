#pragma once

#include <cstdint>
#include <string>

/// These functions describe this process and its host:
///
///   const std::string folder = EnvironmentValue("TMPDIR");  // "" if it is not set
///   record.host = HostName();

namespace millrace {

/// Returns the value of a variable of the environment; "" if it is not set. Unsafe while another thread sets one.
std::string EnvironmentValue(const std::string& name);

/// Returns "localhost" if the system gives no name.
std::string HostName();

/// Returns 16 hex digits of it, for the names of files in folders that several machines share.
std::string HostDigits();

/// Returns the CPU-seconds of all threads of this process so far, in user space and in the kernel.
double CpuSeconds();

/// Returns the most bytes that this process has had in memory; 0 if the system does not say.
uint64_t PeakResidentBytes();

/// Lets this process have as many files and connections open as the system permits. A process begins with a lower limit
/// for programs that use select(), which Millrace does not. Call it once, before there are threads.
void AllowManyFiles();

/// Takes that back, between fork and exec or before exec: the program that follows may use select(), or go through all
/// numbers up to the limit. Does nothing if AllowManyFiles was not called. Safe after fork. Programs that
/// are started with posix_spawn (child_process.h) keep the raised limit.
void RestoreFileLimit();

}  // namespace millrace
