#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "shard/tar_reader.h"

/// Builds archives field by field, as no writer would, and reads whole archives. For tests only.

namespace millrace::testing {

struct RawHeader {
  std::string name;
  std::string size = "00000000000";  // the twelve bytes of the field; shorter ones are followed by NULs
  char type = '0';
  std::string magic = std::string(
      "ustar\0"
      "00",
      8);
  std::string prefix = "";  // NOLINT: designated initialisers want it
  bool signed_checksum = false;
};

/// Returns the header block, with a valid checksum.
std::string Header(const RawHeader& raw);
/// Returns `size` as the field of a header.
std::string Octal(uint64_t size);
/// Returns header, data and padding of a member of `type`.
std::string Member(std::string_view name, std::string_view data, char type = '0');
/// Returns a PAX header of records "key=value".
std::string Pax(const std::vector<std::string>& records, char type = 'x');
std::string End();

/// Returns the index that wds2idx of NVIDIA DALI makes of an archive: each regular file, in groups of one name up to
/// its first dot.
std::string WdsIndexOf(std::string_view archive);

/// Returns all members; `chunk` bytes are given at a time (0: all at once).
absl::StatusOr<std::vector<TarMember>> ReadMembers(std::string_view archive, size_t chunk = 0);

}  // namespace millrace::testing
