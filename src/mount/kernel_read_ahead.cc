#include "mount/kernel_read_ahead.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>

namespace millrace {

namespace {

constexpr unsigned kReadAheadKb = 512;

}  // namespace

dev_t DeviceOfMount(const std::string& folder, dev_t below) {
  struct statx info {};
  // This process is the file system, so the call must not ask it.
  if (statx(AT_FDCWD, folder.c_str(), AT_STATX_DONT_SYNC, STATX_INO, &info) != 0) return 0;
  // If it is unmounted by now, this is another one.
  constexpr uint64_t kRoot = 1;
  const dev_t device = makedev(info.stx_dev_major, info.stx_dev_minor);
  return device == below || info.stx_dev_major != 0 || info.stx_ino != kRoot ? 0 : device;
}

void RaiseKernelReadAhead(const std::string& folder, dev_t below) {
  const dev_t device = DeviceOfMount(folder, below);
  if (device == 0) return;
  const std::string path = fmt::format("/sys/class/bdi/{}:{}/read_ahead_kb", major(device), minor(device));
  unsigned now = 0;
  if (!(std::ifstream(path) >> now) || now >= kReadAheadKb) return;
  std::ofstream(path) << kReadAheadKb;
}

}  // namespace millrace
