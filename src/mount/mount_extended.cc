#include <sys/xattr.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

#include "mount/mount_server.h"

/// Extended attributes: the mount keeps those that programs set until it ends.

namespace millrace {

namespace {

// One file has so many bytes of names and values, as on ext4.
constexpr size_t kMostExtended = 4096;

// Access lists would have to be held; programs that copy files pass over them.
bool IsKept(std::string_view name) {
  return !name.starts_with("system.");
}

size_t BytesOf(const FileAttributes& attributes) {
  size_t bytes = 0;
  for (const auto& [name, value] : attributes.extended) bytes += name.size() + value.size();
  return bytes;
}

// Answers a call that asks how much there is, or for all of it.
void ReplyExtended(fuse_req_t request, std::string_view bytes, size_t room) {
  if (room == 0) {
    fuse_reply_xattr(request, bytes.size());
  } else if (bytes.size() > room) {
    fuse_reply_err(request, ERANGE);
  } else {
    fuse_reply_buf(request, bytes.data(), bytes.size());
  }
}

}  // namespace

absl::StatusOr<std::string> Mount::Server::KeyOfInode(uint64_t inode) const {
  if (const auto written = local_.FindInode(inode)) {
    if (written->unlinked()) return RefusedWith(EOPNOTSUPP, "a removed file has no extended attributes");
    return written->key();
  }
  ASSIGN_OR_RETURN(Node node, Known(inode));
  return std::move(node.key);
}

absl::Status Mount::Server::SetExtended(Request request, uint64_t inode, const char* name, std::string_view value,
                                        int flags) {
  RETURN_IF_ERROR(CheckWritable());
  if (!IsKept(name)) return RefusedWith(EOPNOTSUPP, "a mount keeps no access lists");
  ASSIGN_OR_RETURN(const std::string key, KeyOfInode(inode));
  int error = 0;
  attributes_.Change(key, [&](FileAttributes& attributes) {
    const auto found = attributes.extended.find(name);
    const bool exists = found != attributes.extended.end();
    const size_t before = exists ? found->first.size() + found->second.size() : 0;
    if ((flags & XATTR_CREATE) != 0 && exists) {
      error = EEXIST;
    } else if ((flags & XATTR_REPLACE) != 0 && !exists) {
      error = ENODATA;
    } else if (BytesOf(attributes) - before + std::strlen(name) + value.size() > kMostExtended) {
      error = ENOSPC;
    } else {
      attributes.extended[name] = std::string(value);
    }
  });
  fuse_reply_err(request, error);
  return absl::OkStatus();
}

absl::Status Mount::Server::GetExtended(Request request, uint64_t inode, const char* name, size_t room) {
  if (!IsKept(name)) {
    fuse_reply_err(request, EOPNOTSUPP);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string key, KeyOfInode(inode));
  const FileAttributes attributes = attributes_.Find(key).value_or(FileAttributes());
  const auto found = attributes.extended.find(name);
  if (found == attributes.extended.end()) {
    fuse_reply_err(request, ENODATA);  // no news: the kernel asks before each write whether a file has capabilities
  } else {
    ReplyExtended(request, found->second, room);
  }
  return absl::OkStatus();
}

absl::Status Mount::Server::ListExtended(Request request, uint64_t inode, size_t room) {
  ASSIGN_OR_RETURN(const std::string key, KeyOfInode(inode));
  std::string names;
  if (const std::optional<FileAttributes> attributes = attributes_.Find(key)) {
    for (const auto& [name, value] : attributes->extended) names.append(name).push_back('\0');
  }
  ReplyExtended(request, names, room);
  return absl::OkStatus();
}

absl::Status Mount::Server::RemoveExtended(Request request, uint64_t inode, const char* name) {
  RETURN_IF_ERROR(CheckWritable());
  ASSIGN_OR_RETURN(const std::string key, KeyOfInode(inode));
  bool removed = false;
  if (const std::optional<FileAttributes> attributes = attributes_.Find(key);
      attributes && attributes->extended.contains(name)) {
    attributes_.Change(key, [&](FileAttributes& kept) { removed = kept.extended.erase(name) > 0; });
  }
  fuse_reply_err(request, removed ? 0 : ENODATA);
  return absl::OkStatus();
}

// ---- libfuse

void Mount::Server::AddExtended(fuse_lowlevel_ops& operations) {
  operations.setxattr = [](Request request, fuse_ino_t inode, const char* name, const char* value, size_t size,
                           int flags) {
    AnswerChange(request, [&](Server& self) { return self.SetExtended(request, inode, name, {value, size}, flags); });
  };
  operations.getxattr = [](Request request, fuse_ino_t inode, const char* name, size_t room) {
    Answer(request, [&](Server& self) { return self.GetExtended(request, inode, name, room); });
  };
  operations.listxattr = [](Request request, fuse_ino_t inode, size_t room) {
    Answer(request, [&](Server& self) { return self.ListExtended(request, inode, room); });
  };
  operations.removexattr = [](Request request, fuse_ino_t inode, const char* name) {
    AnswerChange(request, [&](Server& self) { return self.RemoveExtended(request, inode, name); });
  };
}

}  // namespace millrace
