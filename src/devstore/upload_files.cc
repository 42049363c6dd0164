#include "devstore/upload_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/crypto.h"
#include "devstore/dir_walk.h"
#include "devstore/s3_error.h"
#include "devstore/sidecar.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPartSuffix = ".part";

template <typename T>
T Parse(std::string_view text) {
  T value{};
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

void UploadFiles::Load() {
  const auto ids = ReadFolder(folder_);
  if (!ids.ok()) return;  // cannot be read: as good as none
  for (const std::string& id : *ids) LoadUpload(id.substr(0, id.find('/')));
}

void UploadFiles::LoadUpload(const std::string& id) {
  const std::string folder = folder_ + "/" + id;
  const auto text = ReadTextFile(folder + "/upload");
  if (!text.ok()) return;
  const Fields fields = DecodeFields(*text);
  Upload upload{.id = id,
                .bucket = FieldOr(fields, "bucket"),
                .key = FieldOr(fields, "key"),
                .attributes = ReadAttributes(fields),
                .initiated_ns = Parse<int64_t>(FieldOr(fields, "initiated-ns")),
                .parts = {}};
  const auto names = ReadFolder(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!name.ends_with(kPartSuffix)) continue;
    const auto part_text = ReadTextFile(folder + "/" + name);
    if (!part_text.ok()) continue;
    const Fields part = DecodeFields(*part_text);
    const std::string path = folder + "/" + FieldOr(part, "file");
    std::error_code missing;
    const uint64_t size = fs::file_size(path, missing);
    if (missing) continue;
    upload.parts[Parse<int>(name)] = UploadPart{.etag = FieldOr(part, "etag"),
                                                .checksum = ReadChecksum(part),
                                                .modified_ns = Parse<int64_t>(FieldOr(part, "modified-ns")),
                                                .content = std::make_shared<const FileContent>(path, size)};
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
  ASSIGN_OR_RETURN(const Upload upload, table_.Find(id));
  const std::string folder = folder_ + "/" + id;
  // A part that is sent again gets another file: who is reading the old one goes on reading it.
  const std::string name = fmt::format("{}-{}", number, RandomHex(8));
  part.modified_ns = NowNs();
  part.content = std::make_shared<const FileContent>(folder + "/" + name, content.size());
  Fields fields = {{"file", name}, {"etag", part.etag}, {"modified-ns", std::to_string(part.modified_ns)}};
  AppendChecksum(part.checksum, &fields);
  if (rename(content.path().c_str(), (folder + "/" + name).c_str()) != 0) {
    return errno == ENOENT ? NoSuchUpload(id) : FileError(errno, "writing a part of upload", id);
  }
  content.Keep();
  RETURN_IF_ERROR(WriteTextFile(fmt::format("{}/{}{}", folder, number, kPartSuffix), EncodeFields(fields)));
  RETURN_IF_ERROR(table_.PutPart(id, number, std::move(part)));
  const auto replaced = upload.parts.find(number);
  if (replaced != upload.parts.end()) unlink(static_cast<const FileContent&>(*replaced->second.content).path().c_str());
  return absl::OkStatus();
}

absl::Status UploadFiles::Remove(const std::string& id) {
  RETURN_IF_ERROR(table_.Remove(id));
  std::error_code ignored;
  fs::remove_all(folder_ + "/" + id, ignored);
  return absl::OkStatus();
}

}  // namespace millrace
