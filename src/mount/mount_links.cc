#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "mount/mount_server.h"
#include "store/checks.h"

/// Symbolic links: objects with keys of their own (LinkKey), whose bytes are the path that the link stands for.

namespace millrace {

// A file that gets such a key, or whose size changes under it, would become a link.
absl::Status Mount::Server::CheckNoLinkKey(const std::string& key) const {
  if (!options_.links || !IsLinkKey(key)) return absl::OkStatus();
  return RefusedWith(EINVAL, store_.Uri(key) + ": this name belongs to objects that are symbolic links");
}

// Returns the same as KeyOf, for a file that is made. Refuses a name that belongs to links.
absl::StatusOr<std::string> Mount::Server::NewKeyOf(uint64_t parent, const char* name) const {
  ASSIGN_OR_RETURN(std::string key, KeyOf(parent, name));
  RETURN_IF_ERROR(CheckNoLinkKey(key));
  return key;
}

absl::StatusOr<std::string> Mount::Server::LinkKeyOf(const std::string& key, const char* name) {
  std::string link = LinkKey(key);
  if (LinkKey(name).size() <= kMaxFileName && link.size() < kMaxKeyBytes) return link;
  return RefusedWith(ENAMETOOLONG, fmt::format("{}: the name or the key is too long for a link", name));
}

// Does the same as Find. It also finds a file that is being written.
absl::StatusOr<Node> Mount::Server::FindShown(uint64_t parent, const char* name, const std::string& key,
                                              const Patience& patience) const {
  if (const auto file = local_.Find(key)) return file->node();
  return Find(parent, name, patience);
}

absl::StatusOr<ObjectInfo> Mount::Server::PutLink(const std::string& key, std::string target,
                                                  const Patience& patience) {
  // The call may outlast the wait for it.
  const auto body = std::make_shared<const std::string>(std::move(target));
  std::stop_source stop;
  PutOptions options;
  options.only_if_absent = true;
  options.stop = stop.get_token();
  Completion<absl::StatusOr<ObjectInfo>> call;
  store_.Put(key, AsBytes(*body), std::move(options),
             [body, done = call.Callback()](absl::StatusOr<ObjectInfo> put) { done(std::move(put)); });
  absl::StatusOr<ObjectInfo> put = patience.Wait(call, store_.Uri(key));
  if (!put.ok()) stop.request_stop();
  return put;
}

absl::Status Mount::Server::MakeLink(Request request, const char* target, uint64_t parent, const char* name) {
  RETURN_IF_ERROR(CheckWritable());
  if (!options_.links) return RefusedWith(EPERM, "this mount has no symbolic links");
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string key, NewKeyOf(parent, name));
  ASSIGN_OR_RETURN(const std::string link, LinkKeyOf(key, name));
  const absl::StatusOr<Node> there = FindShown(parent, name, key, patience);
  if (there.ok()) return absl::AlreadyExistsError(store_.Uri(key) + ": exists");
  if (!absl::IsNotFound(there.status())) return there.status();
  ASSIGN_OR_RETURN(const ObjectInfo info, PutLink(link, target, patience));
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  Node node = tree_.FileNode(info, link);
  node.size = std::strlen(target);
  node.modified_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  ahead_.Forget(link);
  attributes_.Remove(link);
  attributes_.Change(link, [&](FileAttributes& attributes) {
    attributes.version = node.etag;
    attributes.modified = attributes.accessed = now;
  });
  NoteCreator(request, link, 0777, /*is_usual=*/true);
  NoteChangeBeside(link);
  fuse_entry_param entry{};
  entry.entry_timeout = entry.attr_timeout = Validity();
  entry.ino = inodes_.Remember(node);
  entry.attr = StatOf(node, entry.ino);
  if (fuse_reply_entry(request, &entry) != 0) inodes_.Forget(entry.ino, 1);
  return absl::OkStatus();
}

// The kernel asks once for each number, which stands for one version.
absl::Status Mount::Server::ReadLink(Request request, uint64_t inode) {
  ASSIGN_OR_RETURN(const Node node, Known(inode));
  if (!tree_.IsLink(node)) return RefusedWith(EINVAL, store_.Uri(node.key) + ": is no link");
  const std::unique_ptr<ReadWindow> window = OpenVersion(node, ReadWindow::Kernel::kKeeps);
  const absl::StatusOr<FileBytes> bytes = window->Read(0, node.size, PatienceOf(request));
  if (absl::IsNotFound(bytes.status())) return RefusedWith(ESTALE, std::string(bytes.status().message()));
  RETURN_IF_ERROR(bytes.status());
  std::string target;
  for (const ByteSpan part : bytes->parts) target.append(reinterpret_cast<const char*>(part.data()), part.size());
  if (target.find('\0') != target.npos) {
    return RefusedWith(EIO, store_.Uri(node.key) + ": is no link, since its bytes are no path: one of them is zero");
  }
  fuse_reply_readlink(request, target.c_str());
  return absl::OkStatus();
}

// ---- libfuse

void Mount::Server::AddLinks(fuse_lowlevel_ops& operations) {
  operations.readlink = [](Request request, fuse_ino_t inode) {
    Answer(request, [&](Server& self) { return self.ReadLink(request, inode); });
  };
  operations.symlink = [](Request request, const char* target, fuse_ino_t parent, const char* name) {
    AnswerChange(request, [&](Server& self) { return self.MakeLink(request, target, parent, name); });
  };
}

}  // namespace millrace
