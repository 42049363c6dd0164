#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "shard/tar_format.h"

/// Writes tar archives, piece by piece by the caller: for each member a header, its data, zeros up to a whole block;
/// then the end. It is plain ustar wherever that can express name and size, otherwise one PAX header in front. The
/// bytes are a function of names and sizes only: mode 0644, owner 0, time 0. Pure.
///
///   RETURN_IF_ERROR(AppendTarHeader(out, "0001.jpg", jpeg.size()));
///   out += jpeg;
///   AppendTarPadding(out, jpeg.size());
///   AppendTarEnd(out);  // after the last member

namespace millrace {

/// Returns the bytes of the header(s) of a member: 512, or more with a PAX header. Returns the same errors as
/// AppendTarHeader.
absl::StatusOr<uint64_t> TarHeaderBytes(std::string_view name, uint64_t size);

/// Appends the header(s) of a regular file of `size` bytes. InvalidArgument for names that are empty, hold a NUL or
/// have more than kMaxNameBytes, and for sizes above kTarMaxOffset.
absl::Status AppendTarHeader(std::string& out, std::string_view name, uint64_t size);

/// Appends the global PAX header which says that the keys of all members that follow are escaped (tar_key.h).
inline constexpr uint64_t kTarEscapedKeysBytes = 2 * kTarBlock;
void AppendTarEscapedKeys(std::string& out);

/// Appends the zeros that follow `size` bytes of data.
void AppendTarPadding(std::string& out, uint64_t size);

/// Every archive ends with two blocks of zeros.
inline constexpr uint64_t kTarEndBytes = 2 * kTarBlock;
void AppendTarEnd(std::string& out);

}  // namespace millrace
