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
  const std::shared_ptr<Folder> folder = Insert(id);
  folder->joint->Seal();
  for (const std::string& name : *names) {
    if (!name.ends_with(kPartSuffix)) continue;
    const int number = Parse<int>(name);
    auto part = LoadPart(*folder, number, fmt::format("{}/{}", path, name));
    if (part.ok()) upload.parts[number] = *std::move(part);
  }
  table_.Insert(std::move(upload));
}

absl::StatusOr<UploadPart> UploadFiles::LoadPart(const Folder& folder, int number, const std::string& record) const {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(record));
  const Fields fields = DecodeFields(text);
  UploadPart part{.etag = FieldOr(fields, "etag"),
                  .checksum = ReadChecksum(fields),
                  .modified_ns = Parse<int64_t>(FieldOr(fields, "modified-ns")),
                  .content = nullptr};
  const std::string name = FieldOr(fields, "file");
  const std::string path = name.empty() ? folder.joint->path() : folder.path + "/" + name;
  std::error_code missing;
  const uint64_t size = fs::file_size(path, missing);
  if (missing) return FileError(ENOENT, "looking at", path);
  if (!name.empty()) {
    part.content = std::make_shared<const FileContent>(path, size);
    return part;
  }
  const auto offset = Parse<uint64_t>(FieldOr(fields, "offset"));
  const auto bytes = Parse<uint64_t>(FieldOr(fields, "bytes"));
  if (bytes > size || offset > size - bytes) return FileError(EINVAL, "looking at", record);
  part.content = std::make_shared<const FileContent>(JointFile::Restore(folder.joint, number, offset), bytes);
  return part;
}

std::shared_ptr<UploadFiles::Folder> UploadFiles::Insert(const std::string& id) {
  auto folder = std::make_shared<Folder>(folder_ + "/" + id);
  std::lock_guard lock(mutex_);
  folders_[id] = folder;
  return folder;
}

absl::StatusOr<std::shared_ptr<UploadFiles::Folder>> UploadFiles::Find(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = folders_.find(id);
  if (found == folders_.end()) return NoSuchUpload(id);
  return found->second;
}

absl::StatusOr<std::string> UploadFiles::Create(Upload upload) {
  upload.id = RandomHex(16);
  upload.initiated_ns = NowNs();
  Fields fields = {
      {"bucket", upload.bucket}, {"key", upload.key}, {"initiated-ns", std::to_string(upload.initiated_ns)}};
  AppendAttributes(upload.attributes, &fields);
  RETURN_IF_ERROR(WriteTextFile(fmt::format("{}/{}/upload", folder_, upload.id), EncodeFields(fields)));
  std::string id = upload.id;
  Insert(id);
  table_.Insert(std::move(upload));
  return id;
}

absl::StatusOr<std::shared_ptr<JointPlace>> UploadFiles::ClaimPlace(const std::string& id, int number, uint64_t bytes) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Folder> folder, Find(id));
  std::lock_guard lock(folder->mutex);  // so that it makes no file while the folder is being removed
  return JointFile::Claim(folder->joint, number, bytes);
}

absl::Status UploadFiles::PutPart(const std::string& id, int number, std::shared_ptr<FileContent> content,
                                  UploadPart part) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Folder> folder, Find(id));
  std::lock_guard lock(folder->mutex);
  if (folder->removed) return NoSuchUpload(id);
  part.modified_ns = NowNs();
  Fields fields = {{"etag", part.etag}, {"modified-ns", std::to_string(part.modified_ns)}};
  AppendChecksum(part.checksum, &fields);
  std::string path;  // where it has a file of its own
  if (content->place() != nullptr) {
    fields.emplace_back("offset", std::to_string(content->offset()));
    fields.emplace_back("bytes", std::to_string(content->size()));
    part.content = content;
  } else {
    // A part that is sent again gets another file: who is reading the old one goes on reading it.
    const std::string name = fmt::format("{}-{}", number, RandomHex(8));
    path = folder->path + "/" + name;
    if (rename(content->path().c_str(), path.c_str()) != 0) return FileError(errno, "writing a part of upload", id);
    content->Keep();
    fields.emplace_back("file", name);
    part.content = std::make_shared<const FileContent>(path, content->size());
  }
  const std::string record = fmt::format("{}/{}{}", folder->path, number, kPartSuffix);
  if (absl::Status written = WriteTextFile(record, EncodeFields(fields)); !written.ok()) {
    if (!path.empty()) unlink(path.c_str());
    return written;
  }
  if (content->place() != nullptr) content->place()->Keep();
  ASSIGN_OR_RETURN(const std::shared_ptr<const Content> replaced, table_.PutPart(id, number, std::move(part)));
  const auto* file = static_cast<const FileContent*>(replaced.get());
  if (file != nullptr && file->place() == nullptr) unlink(file->path().c_str());
  return absl::OkStatus();
}

absl::Status UploadFiles::Remove(const std::string& id) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Folder> folder, Find(id));
  RETURN_IF_ERROR(table_.Remove(id));
  std::lock_guard lock(folder->mutex);
  folder->removed = true;
  std::error_code ignored;
  fs::remove_all(folder->path, ignored);
  std::lock_guard table_lock(mutex_);
  folders_.erase(id);
  return absl::OkStatus();
}

}  // namespace millrace
