#include "devstore/sidecar.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "aws/sigv4.h"
#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/errno_status.h"
#include "base/number.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

constexpr size_t kMaxRecordBytes = size_t{1} << 20;
constexpr size_t kMaxNameBytes = 255;  // of a file system
constexpr std::string_view kHeader = "header:";
constexpr std::string_view kPart = "part";  // "bytes" or "bytes:checksum", once for each, in order

template <typename T>
T NumberOr(const Fields& fields, std::string_view name, T fallback) {
  return ParseNumber<T>(FieldOr(fields, name)).value_or(fallback);
}

ObjectPart ReadPart(std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  ObjectPart part;
  std::from_chars(text.data(), text.data() + colon, part.bytes);
  part.checksum = text.substr(std::min(colon + 1, text.size()));
  return part;
}

std::optional<Checksum> ReadChecksum(const Fields& fields) {
  const auto algorithm = FindChecksumAlgorithm(FieldOr(fields, "checksum-algorithm"));
  if (!algorithm) return std::nullopt;
  return Checksum{*algorithm, FieldOr(fields, "checksum"), FieldOr(fields, "checksum-type") == "COMPOSITE"};
}

}  // namespace

std::string EncodeFields(const Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    out.append(name).append(" ").append(UriEncode(value, /*keep_slash=*/true)).append("\n");
  }
  return out;
}

Fields DecodeFields(std::string_view text) {
  Fields fields;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) continue;
    std::optional<std::string> value = UriDecode(line.substr(space + 1));
    if (value) fields.emplace_back(line.substr(0, space), *std::move(value));
  }
  return fields;
}

std::string FieldOr(const Fields& fields, std::string_view name, std::string_view fallback) {
  for (const auto& [field, value] : fields) {
    if (field == name) return value;
  }
  return std::string(fallback);
}

void AppendAttributes(const ObjectAttributes& attributes, Fields* fields) {
  fields->emplace_back("content-type", attributes.content_type);
  for (const auto& [name, value] : attributes.headers) fields->emplace_back(std::string(kHeader) + name, value);
  if (const auto& checksum = attributes.checksum) {
    fields->emplace_back("checksum-algorithm", ChecksumName(checksum->algorithm));
    fields->emplace_back("checksum-type", checksum->composite ? "COMPOSITE" : "FULL_OBJECT");
    fields->emplace_back("checksum", checksum->value);
  }
  for (const ObjectPart& part : attributes.parts) {
    fields->emplace_back(
        kPart, part.checksum.empty() ? std::to_string(part.bytes) : fmt::format("{}:{}", part.bytes, part.checksum));
  }
}

ObjectAttributes ReadAttributes(const Fields& fields) {
  ObjectAttributes attributes;
  attributes.content_type = FieldOr(fields, "content-type");
  for (const auto& [name, value] : fields) {
    if (name.starts_with(kHeader)) attributes.headers.emplace_back(name.substr(kHeader.size()), value);
    if (name == kPart) attributes.parts.push_back(ReadPart(value));
  }
  attributes.checksum = ReadChecksum(fields);
  return attributes;
}

FileIdentity IdentityOf(const struct stat& stat) {
  return {stat.st_ino, static_cast<uint64_t>(stat.st_size), NanosecondsOf(stat.st_mtim), NanosecondsOf(stat.st_ctim)};
}

std::string DerivedETag(const FileIdentity& identity) {
  // The ETag ends in "-1", as that of an upload in one part, so that no client takes it for the MD5 of the contents.
  const std::string facts =
      fmt::format("{} {} {} {}", identity.inode, identity.size, identity.modified_ns, identity.changed_ns);
  return HexEncode(Md5(AsBytes(facts))) + "-1";
}

std::string EncodeObject(std::string_view key, const ObjectRecord& record, const FileIdentity& identity) {
  Fields fields;
  fields.emplace_back("key", key);
  fields.emplace_back("inode", std::to_string(identity.inode));
  fields.emplace_back("size", std::to_string(identity.size));
  fields.emplace_back("modified-ns", std::to_string(identity.modified_ns));
  if (identity.changed_ns != 0) fields.emplace_back("changed-ns", std::to_string(identity.changed_ns));
  fields.emplace_back("etag", record.etag);
  AppendAttributes(record.attributes, &fields);
  return EncodeFields(fields);
}

std::optional<ObjectRecord> DecodeObject(std::string_view text, const FileIdentity& identity) {
  const Fields fields = DecodeFields(text);
  const FileIdentity recorded = {NumberOr<uint64_t>(fields, "inode", 0), NumberOr<uint64_t>(fields, "size", UINT64_MAX),
                                 NumberOr<int64_t>(fields, "modified-ns", 0),
                                 NumberOr<int64_t>(fields, "changed-ns", identity.changed_ns)};
  std::string etag = FieldOr(fields, "etag");
  if (recorded != identity || etag.empty()) return std::nullopt;
  return ObjectRecord{ReadAttributes(fields), std::move(etag), identity.size, identity.modified_ns};
}

bool IsPlainPath(std::string_view key) {
  if (key.empty() || key.find('\0') != std::string_view::npos) return false;
  for (size_t at = 0; at <= key.size();) {
    const size_t end = std::min(key.find('/', at), key.size());
    const std::string_view name = key.substr(at, end - at);
    if (name.empty() || name == "." || name == ".." || name.size() > kMaxNameBytes) return false;
    at = end + 1;
  }
  return true;
}

absl::Status FileError(const absl::Status& status) {
  if (status.ok()) return status;
  if (absl::IsPermissionDenied(status)) {
    return S3Error(s3code::kAccessDenied,
                   fmt::format("Access Denied: devstore may not do this in its folder ({})", ToStd(status.message())));
  }
  return S3Error(s3code::kInternalError, ToStd(status.message()));
}

absl::Status FileError(int error, std::string_view doing, std::string_view name) {
  return FileError(ErrnoStatus(error, name, doing));
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno == ENOENT ? absl::NotFoundError(path) : FileError(errno, "reading", path);
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(file.get(), buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(errno, "reading", path);
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMaxRecordBytes) return S3Error(s3code::kInternalError, fmt::format("{} is too large", path));
  }
}

absl::Status MakeFolders(const std::string& path) {
  return FileError(MakeFolder(path, path, Durability::kUnsynced));
}

absl::Status WriteTextFile(const std::string& path, std::string_view text) {
  return FileError(WriteFileAtomically(path, text));
}

}  // namespace millrace
