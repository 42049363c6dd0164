#include "shard/tar_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "shard/sample_name.h"
#include "shard/tar_format.h"

namespace millrace {

namespace {

// Memory is taken as the bytes come. Copies of files with their extended attributes have some MiB.
constexpr uint64_t kMaxExtensionBytes = 64 << 20;

absl::Status DamagedTar(uint64_t offset, std::string_view what) {
  return absl::DataLossError(fmt::format("offset {}: {}", offset, what));
}

absl::Status Unsupported(uint64_t offset, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("offset {}: {}", offset, what));
}

std::string_view UntilNul(std::string_view field) {
  return field.substr(0, field.find('\0'));
}

// Parses an octal number between optional spaces, ended by NUL, a space or the field's end; empty counts as 0. Also
// parses, in GNU's way, a big-endian number marked by the first byte's top bit.
std::optional<uint64_t> ParseOctal(std::string_view field) {
  const auto first = static_cast<unsigned char>(field.front());
  uint64_t value = 0;
  if (first & 0x80) {
    if (first == 0xff) return std::nullopt;  // negative
    value = first & 0x7f;
    for (const char c : field.substr(1)) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  size_t i = 0;
  while (i < field.size() && field[i] == ' ') ++i;
  for (; i < field.size() && field[i] >= '0' && field[i] <= '7'; ++i) {
    value = value << 3 | static_cast<uint64_t>(field[i] - '0');  // twelve digits at most
  }
  if (i < field.size() && field[i] != '\0' && field[i] != ' ') return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseDecimal(std::string_view text) {
  if (text.empty() || text.size() > 19) return std::nullopt;  // 19 digits fit into 64 bits
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

bool ChecksumMatches(std::string_view header) {
  const std::optional<uint64_t> stored = ParseOctal(TarField(header, kTarChecksum));
  if (!stored) return false;
  // The field counts as spaces. Some old programs summed signed bytes.
  uint64_t unsigned_sum = 0;
  int64_t signed_sum = 0;
  for (size_t i = 0; i < header.size(); ++i) {
    const bool own = i - kTarChecksum.offset < kTarChecksum.length;
    const char c = own ? ' ' : header[i];
    unsigned_sum += static_cast<unsigned char>(c);
    signed_sum += static_cast<signed char>(c);
  }
  return *stored == unsigned_sum || static_cast<int64_t>(*stored) == signed_sum;
}

std::string_view CompressionOf(std::string_view bytes) {
  if (bytes.starts_with("\x1f\x8b")) return "gzip";
  if (bytes.starts_with("\x28\xb5\x2f\xfd")) return "zstd";
  if (bytes.starts_with("BZh")) return "bzip2";
  if (bytes.starts_with("\xfd"
                        "7zXZ")) {
    return "xz";
  }
  return {};
}

// `bytes` are the first ones of the object.
absl::Status CheckNotCompressed(std::string_view bytes) {
  const std::string_view compression = CompressionOf(bytes);
  if (compression.empty()) return absl::OkStatus();
  return Unsupported(
      0, fmt::format("compressed with {}; samples can be read singly only from plain tar: decompress it", compression));
}

// POSIX gives links, devices and folders no data, whatever their size field says.
bool HasData(char type) {
  return type < '1' || type > '6';
}

bool IsLinkType(char type) {
  return type == '1' || type == '2';
}

bool IsRegularType(char type) {
  return type == '0' || type == '\0' || type == '7';
}

bool AllZero(std::string_view bytes) {
  return bytes.find_first_not_of('\0') == std::string_view::npos;
}

absl::Status DamagedBehindEnd(uint64_t offset) {
  return DamagedTar(offset,
                    "bytes that are not zero follow the end of the tar archive, and no other archive begins with them");
}

std::string HeaderName(std::string_view header) {
  const std::string_view name = UntilNul(TarField(header, kTarName));
  // GNU's own magic has other things in the place of the prefix.
  if (TarField(header, kTarMagic) != kUstarMagic) return std::string(name);
  const std::string_view prefix = UntilNul(TarField(header, kTarPrefix));
  return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
}

}  // namespace

absl::StatusOr<TarReader::Event> TarReader::Advance(ByteSpan bytes) {
  while (true) {
    const uint64_t whole = extension_type_ != 0 ? TarPadded(extension_size_) : kTarBlock;
    if (buffer_.empty()) header_offset_ = position_;
    const size_t taken = std::min<uint64_t>(whole - buffer_.size(), bytes.size());
    buffer_.append(AsText(bytes.first(taken)));
    bytes = bytes.subspan(taken);
    position_ += taken;
    if (buffer_.size() < whole) return Event::kNeedBytes;
    if (extension_type_ != 0) {
      RETURN_IF_ERROR(ReadExtension());
      extension_type_ = 0;
      buffer_.clear();
      continue;
    }
    const uint64_t after_header = position_;
    ASSIGN_OR_RETURN(const Event event, ReadHeader());
    buffer_.clear();
    if (event != Event::kNeedBytes) return event;
    // A skipped extension has moved the position on.
    const uint64_t skip = position_ - after_header;
    if (skip > bytes.size()) return Event::kNeedBytes;
    bytes = bytes.subspan(skip);
  }
}

// The result kNeedBytes means here: no member yet, continue.
absl::StatusOr<TarReader::Event> TarReader::ReadHeader() {
  const std::string_view header = buffer_;
  if (AllZero(header)) return EndArchive();
  if (!ChecksumMatches(header)) {
    if (between_) return DamagedBehindEnd(header_offset_);
    if (header_offset_ > 0) return DamagedTar(header_offset_, "corrupt tar header (its checksum does not match)");
    RETURN_IF_ERROR(CheckNotCompressed(header));
    return DamagedTar(0, "not a tar archive (no header with a valid checksum)");
  }
  const std::optional<uint64_t> size = ParseOctal(TarField(header, kTarSize));
  if (!size) return DamagedTar(header_offset_, "corrupt tar header (its size is not a number)");
  between_ = false;
  const char type = header[kTarType.offset];
  switch (type) {
    case 'x':
    case 'X':
    case 'g':
    case 'L':
    case 'K':
      RETURN_IF_ERROR(BeginExtension(type, *size));
      return Event::kNeedBytes;
    case 'S':
      return Unsupported(header_offset_,
                         fmt::format("'{}' is a sparse file; pack it without --sparse", HeaderName(header)));
    default:
      RETURN_IF_ERROR(FinishMember(type, *size));
      return Event::kMember;
  }
}

TarReader::Event TarReader::EndArchive() {
  if (between_) return Event::kNeedBytes;
  between_ = true;
  local_ = {};
  global_ = {};
  long_name_.reset();
  return Event::kEnd;
}

absl::Status TarReader::BeginExtension(char type, uint64_t size) {
  if (size > kMaxExtensionBytes) {
    return DamagedTar(header_offset_,
                      fmt::format("extended header of {} bytes (at most {} are allowed)", size, kMaxExtensionBytes));
  }
  if (type == 'K') {  // the target of a link: links are not read
    position_ += TarPadded(size);
  } else if (size > 0) {
    extension_type_ = type;
    extension_size_ = size;
  }
  return absl::OkStatus();
}

absl::Status TarReader::ReadExtension() {
  const std::string_view data = std::string_view(buffer_).substr(0, extension_size_);
  if (extension_type_ == 'L') {
    const std::string_view name = UntilNul(data);
    if (name.size() > kMaxNameBytes) {
      return Unsupported(header_offset_,
                         fmt::format("name of {} bytes (at most {} are allowed)", name.size(), kMaxNameBytes));
    }
    long_name_ = std::string(name);
    return absl::OkStatus();
  }
  return ReadPaxRecords(data, extension_type_ == 'g' ? &global_ : &local_);
}

// Each record is "LENGTH KEY=VALUE\n"; the length counts all of it, in decimal.
absl::Status TarReader::ReadPaxRecords(std::string_view records, Overrides* into) const {
  // Some writers pad the last record with NULs.
  while (!records.empty() && records.front() != '\0') {
    const size_t space = records.find(' ');
    if (space == std::string_view::npos) return DamagedTar(header_offset_, "corrupt PAX header (no length)");
    const std::optional<uint64_t> length = ParseDecimal(records.substr(0, space));
    if (!length || *length <= space + 1 || *length > records.size() || records[*length - 1] != '\n') {
      return DamagedTar(header_offset_, "corrupt PAX header (wrong length of a record)");
    }
    const std::string_view record = records.substr(space + 1, *length - space - 2);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos)
      return DamagedTar(header_offset_, "corrupt PAX header (a record without '=')");
    RETURN_IF_ERROR(ReadPaxRecord(record.substr(0, equals), record.substr(equals + 1), into));
    records.remove_prefix(*length);
  }
  return absl::OkStatus();
}

absl::Status TarReader::ReadPaxRecord(std::string_view key, std::string_view value, Overrides* into) const {
  if (key == "path") {
    if (value.size() > kMaxNameBytes) {
      return Unsupported(header_offset_,
                         fmt::format("name of {} bytes (at most {} are allowed)", value.size(), kMaxNameBytes));
    }
    if (value.find('\0') != std::string_view::npos)
      return DamagedTar(header_offset_, "corrupt PAX header (NUL in a path)");
    into->path.reset();  // an empty value takes an earlier one back
    if (!value.empty()) into->path = std::string(value);
  } else if (key == "size") {
    into->size.reset();
    if (value.empty()) return absl::OkStatus();
    into->size = ParseDecimal(value);
    if (!into->size) return DamagedTar(header_offset_, "corrupt PAX header (its size is not a number)");
  } else if (key == kTarCommentKeyword) {
    into->escaped_keys = value == kTarEscapedKeys;
  } else if (key.starts_with("GNU.sparse.")) {
    return Unsupported(header_offset_, "sparse file (PAX GNU.sparse); pack it without --sparse");
  }
  return absl::OkStatus();
}

absl::Status TarReader::FinishMember(char type, uint64_t header_size) {
  if (local_.path) {
    member_.name = *std::move(local_.path);
  } else if (long_name_) {
    member_.name = *std::move(long_name_);
  } else {
    member_.name = global_.path ? *global_.path : HeaderName(buffer_);
  }
  member_.size = 0;
  if (HasData(type)) {
    member_.size = local_.size ? *local_.size : global_.size ? *global_.size : header_size;
  }
  // In v7, a folder is a file whose name ends with a slash.
  member_.regular = IsRegularType(type) && !(type == '\0' && member_.name.ends_with('/'));
  member_.link = IsLinkType(type);
  member_.data_offset = position_;
  local_ = {};
  long_name_.reset();
  if (position_ > kTarMaxOffset || member_.size > kTarMaxOffset) {
    return DamagedTar(header_offset_, fmt::format("'{}' claims {} bytes", member_.name, member_.size));
  }
  position_ += TarPadded(member_.size);
  return absl::OkStatus();
}

absl::Status TarReader::Finish(uint64_t object_size) const {
  if (between_) return AllZero(buffer_) ? absl::OkStatus() : DamagedBehindEnd(header_offset_);
  if (header_offset_ == 0) RETURN_IF_ERROR(CheckNotCompressed(buffer_));  // less than a header
  if (!buffer_.empty() || extension_type_ != 0)
    return DamagedTar(object_size, "truncated tar archive (it ends inside a header)");
  if (position_ > object_size) {
    if (member_.data_offset + member_.size > object_size) {
      return DamagedTar(object_size, fmt::format("truncated tar archive ('{}' has {} bytes from offset {} on)",
                                                 member_.name, member_.size, member_.data_offset));
    }
  }
  return DamagedTar(object_size,
                    "truncated tar archive (no end-of-archive block; complete ones end with two blocks of zeros)");
}

}  // namespace millrace
