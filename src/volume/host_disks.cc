#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "absl/strings/str_split.h"
#include "base/child_process.h"
#include "volume/ec2_world.h"

namespace millrace {

namespace {

struct ToolEnd {
  int status = 0;
  std::string output;  // without the end of its last line
  std::string said;    // the last line on stderr
};

std::string WithoutLineEnd(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

absl::StatusOr<ToolEnd> RunTool(const std::vector<std::string>& words) {
  const ChildCommand command{.words = words, .input = {}, .keep_errors = true, .limit = std::nullopt};
  absl::StatusOr<ChildEnd> end = RunChild(command, {});
  if (absl::IsNotFound(end.status()) || (end.ok() && end->exit_status == 127)) {
    return absl::InternalError(fmt::format("there is no program {}; install util-linux and e2fsprogs", words[0]));
  }
  if (!end.ok()) return absl::InternalError(fmt::format("{} {}", words[0], ToStd(end.status().message())));
  ToolEnd tool{end->exit_status, WithoutLineEnd(std::move(end->output)), WithoutLineEnd(std::move(end->errors))};
  if (const size_t line = tool.said.rfind('\n'); line != std::string::npos) tool.said.erase(0, line + 1);
  return tool;
}

// Runs a program that has to succeed.
absl::Status RunOrFail(const std::vector<std::string>& words) {
  ASSIGN_OR_RETURN(const ToolEnd end, RunTool(words));
  if (end.status == 0) return absl::OkStatus();
  std::string shown;
  for (const std::string& word : words) shown += (shown.empty() ? "" : " ") + word;
  // This is not a state that passes by itself, whatever errno was behind it.
  return absl::InternalError(fmt::format("`{}` failed with status {}: {}; it needs the rights of root", shown,
                                         end.status, end.said.empty() ? "it says nothing" : end.said));
}

std::string RealPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? std::string() : real.string();
}

// Returns a column of the mounts that findmnt finds, in the order of the kernel's table.
absl::StatusOr<std::vector<std::string>> FindMounts(const std::string& column, const std::string& by,
                                                    const std::string& name) {
  ASSIGN_OR_RETURN(const ToolEnd end, RunTool({"findmnt", "--noheadings", "--output", column, by, name, "--list"}));
  if (end.status == 0) return std::vector<std::string>(absl::StrSplit(end.output, '\n', absl::SkipEmpty()));
  if (end.status == 1 && end.said.empty()) return std::vector<std::string>();  // as it says that there are none
  return absl::InternalError(
      fmt::format("`findmnt {} {}` failed with status {}: {}; it must work before a disk is taken", by, name,
                  end.status, end.said));
}

// Returns the X of /dev/sdX or /dev/xvdX; nullopt for any other name, as of a partition or of /dev/xvdba.
std::optional<char> LetterOf(std::string_view name) {
  for (const std::string_view prefix : {"/dev/sd", "/dev/xvd"}) {
    if (name.size() != prefix.size() + 1 || !name.starts_with(prefix)) continue;
    if (name.back() >= 'a' && name.back() <= 'z') return name.back();
  }
  return std::nullopt;
}

}  // namespace

std::string HostDisks::FindDevice(const std::string& volume, const std::string& name) const {
  std::string compact = volume;  // "vol0123"
  std::erase(compact, '-');
  const std::string by_id = RealPath(fmt::format("{}/disk/by-id/nvme-Amazon_Elastic_Block_Store_{}", dev_, compact));
  if (!by_id.empty()) return by_id;
  // This is so on Xen instances. Any other name could be that of another disk.
  const std::optional<char> letter = LetterOf(name);
  return letter ? RealPath(fmt::format("{}/xvd{}", dev_, *letter)) : std::string();
}

absl::StatusOr<DeviceContent> HostDisks::ContentOf(const std::string& device) const {
  constexpr int kNothingFound = 2;
  constexpr int kAmbivalent = 8;
  ASSIGN_OR_RETURN(const ToolEnd end, RunTool({"blkid", "-p", "-o", "export", device}));
  if (end.status == kNothingFound && end.said.empty()) return DeviceContent::kNothing;
  if (end.status == kAmbivalent) return DeviceContent::kOther;
  if (end.status != 0) {
    return absl::InternalError(fmt::format("`blkid -p {}` failed with status {}: {}; it needs the rights of root",
                                           device, end.status, end.said));
  }
  const std::string lines = "\n" + end.output;
  return lines.find("\nTYPE=") != std::string::npos ? DeviceContent::kFileSystem : DeviceContent::kOther;
}

absl::StatusOr<std::string> HostDisks::MountedAt(const std::string& path) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> sources, FindMounts("SOURCE", "--mountpoint", path));
  if (sources.empty()) return std::string();
  const std::string real = RealPath(sources.back());
  return real.empty() ? sources.back() : real;
}

absl::StatusOr<std::vector<std::string>> HostDisks::MountsOf(const std::string& device) const {
  return FindMounts("TARGET", "--source", device);
}

absl::Status HostDisks::UnmountAll(const std::string& device) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> paths, MountsOf(device));
  for (auto path = paths.rbegin(); path != paths.rend(); ++path) RETURN_IF_ERROR(RunOrFail({"umount", *path}));
  struct stat info {};
  if (stat(device.c_str(), &info) != 0 || !S_ISBLK(info.st_mode)) return absl::OkStatus();
  const std::string holder = MountedByOthers("/proc", info.st_rdev);
  if (holder.empty()) return absl::OkStatus();
  return absl::InternalError(fmt::format(
      "{} is still mounted by process {}, in another mount namespace; end it, or its container, and try again", device,
      holder));
}

absl::Status HostDisks::MakeFileSystem(const std::string& device) const {
  return RunOrFail({"mkfs.ext4", "-q", device});
}

absl::Status HostDisks::Mount(const std::string& device, const std::string& path) const {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return absl::InternalError(fmt::format("{}: the folder cannot be made: {}", path, error.message()));
  return RunOrFail({"mount", device, path});
}

std::string MountedByOthers(const std::string& proc, dev_t device) {
  const auto space_of = [&proc](const std::string& process) {
    std::error_code error;
    return std::filesystem::read_symlink(fmt::format("{}/{}/ns/mnt", proc, process), error).string();
  };
  const std::string number = fmt::format("{}:{}", major(device), minor(device));
  std::set<std::string> seen{space_of("self")};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(proc, error)) {
    const std::string process = entry.path().filename();
    if (process.find_first_not_of("0123456789") != std::string::npos || !seen.insert(space_of(process)).second)
      continue;
    std::ifstream table(entry.path() / "mountinfo");
    for (std::string line; std::getline(table, line);) {
      // The fields are ID, parent, MAJOR:MINOR, root, mount point, ...
      const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(' ', 5));
      if (fields.size() > 4 && fields[2] == number) return fmt::format("{} at {}", process, fields[4]);
    }
  }
  return std::string();
}

}  // namespace millrace
