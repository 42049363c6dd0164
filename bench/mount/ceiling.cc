// The ceiling of bench/mount/run.py: a file system in user space that has everything in memory and looks nothing up.
//
//   mount_ceiling FOLDER MOUNTPOINT     serves a copy of FOLDER, read into memory, until it is unmounted

#define FUSE_USE_VERSION 312

#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

namespace {

struct Entry {
  bool is_folder = false;
  std::string bytes;
  std::map<std::string, fuse_ino_t> names;
};

std::vector<Entry> entries;  // inode n is entries[n]; 0 is none, 1 the root
constexpr double kForever = 3600;

struct stat StatOf(fuse_ino_t inode) {
  struct stat info {};
  info.st_ino = inode;
  info.st_mode = entries[inode].is_folder ? S_IFDIR | 0555 : S_IFREG | 0444;
  info.st_nlink = 1;
  info.st_size = static_cast<off_t>(entries[inode].bytes.size());
  return info;
}

fuse_entry_param ParamOf(fuse_ino_t inode) {
  fuse_entry_param param{};
  param.ino = inode;
  param.attr = StatOf(inode);
  param.entry_timeout = param.attr_timeout = kForever;
  return param;
}

fuse_ino_t Read(const std::filesystem::path& path) {
  const fuse_ino_t inode = entries.size();
  entries.emplace_back();
  if (!std::filesystem::is_directory(path)) {
    std::ifstream file(path, std::ios::binary);
    entries[inode].bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    return inode;
  }
  entries[inode].is_folder = true;
  for (const auto& below : std::filesystem::directory_iterator(path)) {
    const fuse_ino_t number = Read(below.path());
    entries[inode].names[below.path().filename()] = number;
  }
  return inode;
}

void ReadFolder(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info* /*file*/) {
  std::vector<char> out(size);
  size_t used = 0;
  const auto& names = entries[inode].names;
  off_t number = 0;
  for (const auto& [name, child] : names) {
    if (number++ < offset) continue;
    const fuse_entry_param param = ParamOf(child);
    const size_t needed = fuse_add_direntry_plus(request, out.data() + used, size - used, name.c_str(), &param, number);
    if (needed > size - used) break;
    used += needed;
  }
  fuse_reply_buf(request, out.data(), used);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: mount_ceiling FOLDER MOUNTPOINT\n");
    return 2;
  }
  entries.resize(1);
  Read(argv[1]);
  fuse_lowlevel_ops operations{};
  operations.init = [](void*, fuse_conn_info* connection) {
    connection->want |= connection->capable & FUSE_CAP_READDIRPLUS;
    connection->want &= ~static_cast<unsigned>(FUSE_CAP_READDIRPLUS_AUTO);
    connection->max_background = 128;
  };
  operations.lookup = [](fuse_req_t request, fuse_ino_t parent, const char* name) {
    const auto found = entries[parent].names.find(name);
    fuse_entry_param param{};
    param.entry_timeout = kForever;
    if (found != entries[parent].names.end()) param = ParamOf(found->second);
    fuse_reply_entry(request, &param);
  };
  operations.getattr = [](fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
    const struct stat info = StatOf(inode);
    fuse_reply_attr(request, &info, kForever);
  };
  operations.open = [](fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
    file->keep_cache = 1;
    fuse_reply_open(request, file);
  };
  operations.read = [](fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info*) {
    const std::string& bytes = entries[inode].bytes;
    const size_t at = std::min(bytes.size(), static_cast<size_t>(offset));
    fuse_reply_buf(request, bytes.data() + at, std::min(size, bytes.size() - at));
  };
  operations.readdirplus = ReadFolder;

  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_opt_add_arg(&arguments, "mount_ceiling");
  fuse_opt_add_arg(&arguments, "-o");
  fuse_opt_add_arg(&arguments, "ro,fsname=ceiling");
  fuse_session* const session = fuse_session_new(&arguments, &operations, sizeof(operations), nullptr);
  fuse_opt_free_args(&arguments);
  if (session == nullptr || fuse_session_mount(session, argv[2]) != 0) return 1;
  fuse_set_signal_handlers(session);
  fuse_loop_config* const config = fuse_loop_cfg_create();
  const int result = fuse_session_loop_mt(session, config);
  fuse_loop_cfg_destroy(config);
  fuse_session_unmount(session);
  fuse_session_destroy(session);
  return result < 0 ? 1 : 0;
}
