#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"

namespace millrace {

/// Describes a member of a tar archive and the place of its data.
struct TarMember {
  std::string name;
  uint64_t data_offset = 0;  // of the archive
  uint64_t size = 0;         // 0 for links, folders and devices, which have no data
  bool regular = false;      // a file with contents: not a folder, link, device or something unknown
  bool link = false;         // hard or symbolic: the data, if any, are those of another name
};

/// Walks the headers of a tar archive without needing its data: a state machine over bytes that the caller brings.
///
///   while more: bytes = the archive from reader.position() on (any amount, also none)
///     reader.Advance(bytes) -> kMember: see member(); position() is now that of the next header
///                              kNeedBytes: come back with those from position() on
///                              kEnd: the archive has ended; another one may follow
///   at the end of the object: reader.Finish(size)
///
/// Understands v7, ustar with prefix, GNU (long names, base-256 sizes) and PAX (x and g headers with path and
/// size, and Millrace's comment on keys). Header checksums are verified. Sparse files are refused. The first block of
/// zeros ends the archive. Archives one after the other (`cat a.tar b.tar`) are read as one, as by
/// `tar --ignore-zeros`; global PAX headers are those of one archive. Other bytes that are not zero after an end are
/// DataLoss. An object without an end after its last member counts as truncated, because nothing else would show it.
///
/// Errors start with the offset: DataLoss for corrupt or truncated archives, InvalidArgument for what is well
/// formed but not supported. After an error the reader must not be used. Memory: one header, and extended headers
/// up to 64 MiB, which held_bytes() counts. Not thread-safe.
class TarReader {
 public:
  enum class Event { kNeedBytes, kMember, kEnd };

  /// Returns the offset of the next byte that is needed; those before it are skipped.
  uint64_t position() const { return position_; }
  /// Returns the bytes of memory for the part of a header that has come.
  uint64_t held_bytes() const { return buffer_.capacity(); }

  absl::StatusOr<Event> Advance(ByteSpan bytes);

  /// Returns the latest member, until Advance is called again.
  const TarMember& member() const { return member_; }

  /// Returns true if a global PAX header before the member says that its key was escaped (tar_key.h).
  bool key_is_escaped() const { return global_.escaped_keys; }

  /// Checks that the archive was complete, given the size of the object that holds it.
  absl::Status Finish(uint64_t object_size) const;

 private:
  struct Overrides {
    std::optional<std::string> path;
    std::optional<uint64_t> size;
    bool escaped_keys = false;
  };

  absl::StatusOr<Event> ReadHeader();
  absl::Status ReadExtension();
  absl::Status ReadPaxRecords(std::string_view records, Overrides* into) const;
  absl::Status ReadPaxRecord(std::string_view key, std::string_view value, Overrides* into) const;
  absl::Status BeginExtension(char type, uint64_t size);
  Event EndArchive();
  absl::Status FinishMember(char type, uint64_t header_size);

  uint64_t position_ = 0;
  uint64_t header_offset_ = 0;  // of the header or extension in buffer_
  std::string buffer_;          // a header, or the data of an extension, as far as they have come
  char extension_type_ = 0;     // 0: a header is being read
  uint64_t extension_size_ = 0;
  bool between_ = false;  // the end of an archive has come, and nothing but zeros since
  Overrides local_;       // of the next member
  Overrides global_;      // of all that follow in the archive
  std::optional<std::string> long_name_;
  TarMember member_;
};

}  // namespace millrace
