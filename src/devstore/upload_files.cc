#include "devstore/upload_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "base/crypto.h"
#include "devstore/dir_walk.h"
#include "devstore/s3_error.h"
#include "devstore/sidecar.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

template <typename T>
T Parse(std::string_view text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// A name is "7.part.ETAG.CRC32C.CHECKSUM.RANDOM". A part that is sent again gets another file, so that a reader of the
/// old one continues to read it. The checksum is in base64 for URLs, which has no '.' and no '/'.
std::string PartFileName(int number, const UploadPart& part) {
  std::string raw;
  if (part.checksum) absl::Base64Unescape(part.checksum->value, &raw);
  return fmt::format("{}.part.{}.{}.{}.{}", number, part.etag,
                     part.checksum ? ChecksumName(part.checksum->algorithm) : "", absl::WebSafeBase64Escape(raw),
                     RandomHex(4));
}

struct PartFile {
  int number = 0;
  UploadPart part;
};

/// Returns nullopt for a file that is not a part. The content comes from the file's size, the time from the file.
std::optional<PartFile> ReadPartFile(const std::string& folder, const std::string& name) {
  const std::vector<std::string> words = absl::StrSplit(name, '.');
  if (words.size() != 6 || words[1] != "part") return std::nullopt;
  const std::string path = folder + "/" + name;
  struct stat stat;
  if (::stat(path.c_str(), &stat) != 0) return std::nullopt;
  PartFile file{Parse<int>(words[0]),
                {.etag = words[2], .checksum = std::nullopt, .modified_ns = 0, .content = nullptr}};
  std::string raw;
  if (const auto algorithm = FindChecksumAlgorithm(words[3]);
      algorithm && absl::WebSafeBase64Unescape(words[4], &raw)) {
    file.part.checksum = Checksum{.algorithm = *algorithm, .value = absl::Base64Escape(raw)};
  }
  const FileIdentity identity = IdentityOf(stat);
  file.part.modified_ns = identity.modified_ns;
  file.part.content = std::make_shared<const FileContent>(path, identity.size);
  return file;
}

}  // namespace

void UploadFiles::Load() {
  const auto ids = ReadFolder(folder_);
  if (!ids.ok()) return;  // cannot be read: as good as none
  for (const std::string& id : *ids) LoadUpload(id.substr(0, id.find('/')));
}

void UploadFiles::LoadUpload(const std::string& id) {
  const std::string path = folder_ + "/" + id;
  const auto text = ReadTextFile(path + "/upload");
  if (!text.ok()) return;
  const Fields fields = DecodeFields(*text);
  Upload upload{.id = id,
                .bucket = FieldOr(fields, "bucket"),
                .key = FieldOr(fields, "key"),
                .attributes = ReadAttributes(fields),
                .initiated_ns = Parse<int64_t>(FieldOr(fields, "initiated-ns")),
                .parts = {}};
  const auto names = ReadFolder(path);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    std::optional<PartFile> file = ReadPartFile(path, name);
    if (!file) continue;
    UploadPart& part = upload.parts[file->number];
    if (file->part.modified_ns >= part.modified_ns) part = std::move(file->part);  // else one that was to be replaced
  }
  table_.Insert(std::move(upload));
}

absl::StatusOr<std::string> UploadFiles::Create(Upload upload) {
  upload.id = RandomHex(16);
  upload.initiated_ns = NowNs();
  Fields fields = {
      {"bucket", upload.bucket}, {"key", upload.key}, {"initiated-ns", std::to_string(upload.initiated_ns)}};
  AppendAttributes(upload.attributes, &fields);
  RETURN_IF_ERROR(WriteTextFile(fmt::format("{}/{}/upload", folder_, upload.id), EncodeFields(fields)));
  std::string id = upload.id;
  table_.Insert(std::move(upload));
  return id;
}

absl::Status UploadFiles::PutPart(const std::string& id, int number, FileContent& content, UploadPart part) {
  const std::string path = fmt::format("{}/{}/{}", folder_, id, PartFileName(number, part));
  part.modified_ns = NowNs();
  part.content = std::make_shared<const FileContent>(path, content.size());
  std::lock_guard lock(mutex_);
  if (!table_.Contains(id)) return NoSuchUpload(id);
  if (rename(content.path().c_str(), path.c_str()) != 0) return FileError(errno, "writing a part of upload", id);
  content.Keep();
  ASSIGN_OR_RETURN(const std::shared_ptr<const Content> replaced, table_.PutPart(id, number, std::move(part)));
  if (replaced != nullptr) unlink(static_cast<const FileContent&>(*replaced).path().c_str());
  return absl::OkStatus();
}

absl::Status UploadFiles::Remove(const std::string& id) {
  {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(table_.Remove(id));
  }
  std::error_code ignored;
  fs::remove_all(folder_ + "/" + id, ignored);
  return absl::OkStatus();
}

}  // namespace millrace
