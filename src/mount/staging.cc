#include "mount/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/errno_status.h"
#include "base/json_members.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "transfer/file_lock.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;
using RecordJson = nlohmann::ordered_json;

constexpr size_t kPage = 4096;
constexpr const char* kStagingName = "millrace-staging-1";  // its number is that of the format
constexpr const char* kOwnerName = "owner";
constexpr const char* kBytesSuffix = ".bytes";
constexpr const char* kNoteSuffix = ".json";

std::string NoteOf(const std::string& bytes_path) {
  return bytes_path.substr(0, bytes_path.size() - std::string_view(kBytesSuffix).size()) + kNoteSuffix;
}

// Locks a mount's folder. Returns -1 if its owner lives, or if that cannot be found out.
UniqueFd LockOwner(const OwnFolder& base, const std::string& folder) {
  absl::StatusOr<UniqueFd> fd = OpenOwnFile(base, folder + "/" + kOwnerName, O_RDWR | O_CREAT);
  if (!fd.ok() || flock(fd->get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd(-1);
  return *std::move(fd);
}

// Returns the folders in it, but no links and nothing of other users.
std::vector<fs::path> FoldersIn(const OwnFolder& base) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator at(base.path, error), end; !error && at != end; at.increment(error)) {
    struct stat info {};
    if (lstat(at->path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != base.owner) continue;
    folders.push_back(at->path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::vector<fs::path> FilesWith(const fs::path& folder, std::string_view suffix) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == suffix) files.push_back(at->path());
  }
  return files;
}

// Returns how much of the disk the files of a mount's folder take. Those that it has written in part have holes.
uint64_t BytesIn(const OwnFolder& base, const fs::path& folder) {
  constexpr uint64_t kBlock = 512;  // of st_blocks
  uint64_t bytes = 0;
  for (const fs::path& file : FilesWith(folder, kBytesSuffix)) {
    struct stat info {};
    if (lstat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != base.owner) continue;
    bytes += std::min(static_cast<uint64_t>(info.st_size), static_cast<uint64_t>(info.st_blocks) * kBlock);
  }
  return bytes;
}

// Removes the folders of mounts that have ended and left nothing. Returns the bytes of what the others have left.
uint64_t RemoveEmpty(const OwnFolder& base) {
  uint64_t left = 0;
  for (const fs::path& folder : FoldersIn(base)) {
    const UniqueFd lock = LockOwner(base, folder);
    if (!lock) continue;
    if (!FilesWith(folder, kNoteSuffix).empty()) {
      left += BytesIn(base, folder);
      continue;
    }
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  return left;
}

std::string TextOf(const StagedRecord& record) {
  RecordJson local = RecordJson::array();
  for (const ByteRange& range : record.local) local.push_back({range.offset, range.length});
  const RecordJson json = {{"uri", record.uri},
                           {"base", record.base},
                           {"size", record.size},
                           {"local", std::move(local)},
                           {"why", record.why}};
  return json.dump(1, ' ', false, RecordJson::error_handler_t::replace) + "\n";
}

std::optional<StagedRecord> RecordOf(const std::string& text) {
  const RecordJson json = RecordJson::parse(text, nullptr, /*allow_exceptions=*/false);
  StagedRecord record;
  const auto take_range = [&](const RecordJson& range) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() || !range[1].is_number_unsigned()) {
      return false;
    }
    record.local.push_back({range[0].get<uint64_t>(), range[1].get<uint64_t>()});
    return true;
  };
  const bool whole = JsonMembers(json)
                         .Take("uri", &record.uri)
                         .Take("base", &record.base)
                         .Take("size", &record.size)
                         .Take("why", &record.why)
                         .TakeEach("local", take_range)
                         .whole();
  return whole ? std::optional(std::move(record)) : std::nullopt;
}

// Returns nullopt for what has no note: the mount was killed before it could make one. Files of other users and links
// also give nullopt.
std::optional<LeftFile> LeftFileAt(const OwnFolder& base, const fs::path& bytes) {
  const absl::StatusOr<MappedFile> note = MappedFile::OpenOwn(NoteOf(bytes.string()), base);
  std::optional<StagedRecord> record =
      note.ok() ? RecordOf(std::string(AsText(note->bytes()))) : std::optional<StagedRecord>();
  const absl::StatusOr<UniqueFd> file = OpenOwnFile(base, bytes, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!record || !file.ok() || fstat(file->get(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  LeftFile left{.record = *std::move(record), .path = bytes.string()};
  left.modified_ms = int64_t{info.st_mtim.tv_sec} * 1000 + info.st_mtim.tv_nsec / 1'000'000;
  if (left.record.base.empty()) left.record.size = static_cast<uint64_t>(info.st_size);
  uint64_t here = 0;
  for (const ByteRange& range : left.record.local) here += range.length;
  left.is_whole = left.record.base.empty() || here == left.record.size;
  return left;
}

void AddLeft(const OwnFolder& base, std::vector<LeftFile>* left) {
  for (const fs::path& place : FoldersIn(base)) {
    const UniqueFd lock = LockOwner(base, place);
    if (!lock) continue;
    for (const fs::path& bytes : FilesWith(place, kBytesSuffix)) {
      if (std::optional<LeftFile> file = LeftFileAt(base, bytes)) left->push_back(*std::move(file));
    }
  }
}

// Files that another user has left are not for this one to publish.
absl::Status CheckNotOfAnother(const std::string& base) {
  struct stat info {};
  if (lstat(base.c_str(), &info) != 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      fmt::format("{}: belongs to another user (number {}), or others may write to it; if that user asks for what is "
                  "left there, run the command as that user",
                  base, info.st_uid));
}

absl::StatusOr<uint64_t> HalfOfFree(const std::string& folder) {
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0) return ErrnoStatus(errno, folder, "looking how much is free");
  return uint64_t{info.f_bavail} * info.f_frsize / 2;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StagingFolder>> StagingFolder::Open(const std::string& folder, uint64_t most_bytes) {
  ASSIGN_OR_RETURN(const OwnFolder base, TakeOwnFolder(folder, kStagingName, FolderSharing::kNobody));
  // The lock keeps other mounts from taking the new folder for one that was left.
  ASSIGN_OR_RETURN(const FileLock alone, FileLock::OfFile(base.path + "/lock", {}));
  const uint64_t left_bytes = RemoveEmpty(base);
  OwnFolder own{.path = base.path + "/m-XXXXXX", .owner = base.owner};
  if (mkdtemp(own.path.data()) == nullptr) return ErrnoStatus(errno, base.path, "making a folder in it");
  UniqueFd opened(open(own.path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!opened) return ErrnoStatus(errno, own.path, "opening");
  RETURN_IF_ERROR(CheckOwnFile(opened.get(), own.path, own));
  UniqueFd lock = LockOwner(own, own.path);
  if (!lock) return ErrnoStatus(errno, own.path, "locking it");
  if (most_bytes == 0) {
    ASSIGN_OR_RETURN(most_bytes, HalfOfFree(own.path));
  }
  std::unique_ptr<StagingFolder> made(
      new StagingFolder(std::move(own), std::move(opened), std::move(lock), most_bytes, left_bytes));
  try {
    made->later_ = std::make_unique<ThreadPool>(1, "staging");
  } catch (const std::system_error&) {  // no thread: programs that write wait for the disk
  }
  return made;
}

absl::StatusOr<std::vector<LeftFile>> StagingFolder::ListLeft(const std::string& folder) {
  std::vector<LeftFile> left;
  const std::vector<OwnFolder> bases = FindOwnFolders(folder, kStagingName, FolderSharing::kNobody);
  if (bases.empty()) RETURN_IF_ERROR(CheckNotOfAnother(fmt::format("{}/{}", folder, kStagingName)));
  for (const OwnFolder& base : bases) AddLeft(base, &left);
  std::sort(left.begin(), left.end(), [](const LeftFile& one, const LeftFile& other) {
    return std::pair(one.modified_ms, one.path) < std::pair(other.modified_ms, other.path);
  });
  return left;
}

StagingFolder::~StagingFolder() {
  if (!FilesWith(own_.path, kNoteSuffix).empty()) return;
  std::error_code ignored;
  fs::remove_all(own_.path, ignored);
}

bool StagingFolder::HasRoomForKilled() const {
  const uint64_t half = most_bytes_ / 2;
  return left_bytes_ <= half && used_ <= half - left_bytes_;
}

bool StagingFolder::Take(uint64_t bytes) {
  uint64_t used = used_;
  do {
    if (bytes > most_bytes_ || used > most_bytes_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

absl::StatusOr<std::unique_ptr<StagingFile>> StagingFolder::NewFile() {
  const std::string name = fmt::format("{}{}", next_++, kBytesSuffix);
  const std::string path = own_.path + "/" + name;
  UniqueFd fd(openat(opened_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, path, "making it");
  return std::unique_ptr<StagingFile>(new StagingFile(*this, path, std::move(fd)));
}

StagingFile::~StagingFile() {
  (void)Flush();
  if (kept_) return;
  folder_.used_ -= held_;
  unlink(path_.c_str());
  RemoveNote();
}

void StagingFile::RemoveNote() {
  if (std::exchange(noted_, false)) unlink(NoteOf(path_).c_str());
}

bool StagingFile::Hold(uint64_t bytes) {
  if (bytes > held_ && !folder_.Take(bytes - held_)) return false;
  if (bytes < held_) folder_.used_ -= held_ - bytes;
  held_ = bytes;
  return true;
}

absl::Status StagingFile::Write(uint64_t offset, ByteSpan bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path_, "writing");
    offset += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

// Writes whole pages by O_DIRECT; what is not whole goes the other way. File systems that do not do that are found out
// once.
absl::Status StagingFile::WritePastCache(uint64_t offset, ByteSpan bytes) {
  if (is_direct_ && !direct_) {
    constexpr int kFlags = O_WRONLY | O_DIRECT | O_NOFOLLOW | O_CLOEXEC;
    direct_ = UniqueFd(openat(folder_.opened_.get(), fs::path(path_).filename().c_str(), kFlags));
    is_direct_ = static_cast<bool>(direct_);
  }
  const uint64_t head = (kPage - offset % kPage) % kPage;
  const bool is_aligned = (reinterpret_cast<uintptr_t>(bytes.data()) + head) % kPage == 0;
  if (!is_direct_ || !is_aligned || bytes.size() < head + kPage) return Write(offset, bytes);
  RETURN_IF_ERROR(Write(offset, bytes.first(head)));
  offset += head;
  bytes = bytes.subspan(head);
  while (bytes.size() >= kPage) {
    const ByteSpan pages = bytes.first(bytes.size() / kPage * kPage);
    const ssize_t n = pwrite(direct_.get(), pages.data(), pages.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL) is_direct_ = false;
    if (n < static_cast<ssize_t>(kPage)) break;  // the other way finds out why
    const uint64_t whole = static_cast<uint64_t>(n) / kPage * kPage;
    offset += whole;
    bytes = bytes.subspan(whole);
  }
  return Write(offset, bytes);
}

void StagingFile::WriteLater(uint64_t offset, ByteSpan bytes, const std::function<bool()>& is_awaited,
                             std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    ++waiting_;
  }
  folder_.later_->Submit([this, offset, bytes, is_awaited, done = std::move(done)] {
    bool is_after_gap = false;
    {
      const std::lock_guard lock(mutex_);
      is_after_gap = !failed_.empty();
    }
    absl::Status status = absl::ResourceExhaustedError("bytes before it are missing");
    const bool must_hurry = folder_.flushing_ > 0 || is_awaited();
    if (!is_after_gap) status = must_hurry ? Write(offset, bytes) : WritePastCache(offset, bytes);
    done();
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      flushed_end_ = offset + bytes.size();
    } else {
      failed_.push_back({offset, bytes.size()});
    }
    --waiting_;
    written_.notify_all();  // under the lock: the file may be gone right after
  });
}

std::vector<ByteRange> StagingFile::Flush() {
  std::unique_lock lock(mutex_);
  if (waiting_ == 0) return std::exchange(failed_, {});  // the folder may have ended, if this file is kept
  ++folder_.flushing_;                                   // its writes come before those that nobody waits for
  written_.wait(lock, [this] { return waiting_ == 0; });
  --folder_.flushing_;
  return std::exchange(failed_, {});
}

absl::Status StagingFile::Read(uint64_t offset, MutableByteSpan into) const {
  while (!into.empty()) {
    const ssize_t n = pread(fd_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, path_, "reading");
    if (n == 0) return absl::DataLossError(fmt::format("{}: ends at byte {}; was it changed by hand?", path_, offset));
    offset += static_cast<uint64_t>(n);
    into = into.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status StagingFile::Resize(uint64_t size) const {
  if (ftruncate(fd_.get(), static_cast<off_t>(size)) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, path_, "changing its size");
}

// On a file system that has no holes the bytes stay, and the disk may be full sooner than the folder is.
void StagingFile::Drop(ByteRange range) const {
  (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.offset),
                  static_cast<off_t>(range.length));
}

absl::Status StagingFile::Sync() const {
  if (fdatasync(fd_.get()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, path_, "writing to the disk");
}

absl::Status StagingFile::Note(const StagedRecord& record, bool synced) {
  noted_ = true;
  const std::string path = NoteOf(path_);
  const std::string text = TextOf(record);
  if (synced) {
    ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, path, Durability::kSynced, 0600, LinkAtPath::kReplaced));
    RETURN_IF_ERROR(file->Append(AsBytes(text)));
    return file->Commit(/*only_if_absent=*/false).status();
  }
  // The note goes into the folder that was checked, whatever lies at its path now.
  const std::string name = fs::path(path).filename();
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
  const UniqueFd fd(openat(folder_.opened_.get(), name.c_str(), kFlags, 0600));
  if (!fd || write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return ErrnoStatus(errno, path, "writing");
  }
  return absl::OkStatus();
}

}  // namespace millrace
