#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "volume/ec2_world.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A wrong device would be formatted or mounted: only the names that are known are taken.
TEST(HostDisks, FindsTheDeviceOfAnAttachment) {
  std::string folder = testing::TempDir() + "millrace-dev-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const fs::path dev = fs::canonical(folder);
  for (const char* name : {"xvda", "xvdf", "xvd1", "xvdba", "nvme1n1"}) std::ofstream(dev / name) << "";
  fs::create_directories(dev / "disk/by-id");
  fs::create_symlink("../../nvme1n1", dev / "disk/by-id/nvme-Amazon_Elastic_Block_Store_vol7");
  const HostDisks disks(dev);
  EXPECT_EQ(disks.FindDevice("vol-7", "/dev/sdf"), dev / "nvme1n1");
  EXPECT_EQ(disks.FindDevice("vol-8", "/dev/sdf"), dev / "xvdf");
  EXPECT_EQ(disks.FindDevice("vol-8", "/dev/xvdf"), dev / "xvdf");
  EXPECT_EQ(disks.FindDevice("vol-8", "/dev/sdg"), "");
  for (const char* name : {"", "/dev/xvdba", "/dev/sd", "/dev/xvd", "/dev/sda1", "/dev/hda", "xvdf", "/dev/sdF"})
    EXPECT_EQ(disks.FindDevice("vol-8", name), "") << name;
  fs::remove_all(dev);
}

/// Provides programs of the host in a folder that the PATH begins with.
class HostPrograms {
 public:
  HostPrograms() : folder_(testing::TempDir() + "millrace-programs-XXXXXX"), path_(getenv("PATH")) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    setenv("PATH", (folder_ + ":" + path_).c_str(), 1);
  }
  ~HostPrograms() {
    setenv("PATH", path_.c_str(), 1);
    fs::remove_all(folder_);
  }

  void Add(const std::string& name, const std::string& script) const {
    const fs::path program = fs::path(folder_) / name;
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(program, fs::perms::owner_all);
  }
  std::string Said() const {
    std::ifstream file(fs::path(folder_) / "said");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
  const std::string path_;
};

// A bind mount is the usual second one: a disk that is detached while it is mounted loses bytes that are not written
// yet.
TEST(HostDisks, UnmountsADeviceWhereverItIs) {
  const HostPrograms programs;
  const HostDisks disks("/dev");
  programs.Add("findmnt", "printf '/data\\n/home/a b\\n/data\\n'");
  programs.Add("umount", "echo \"$*\" >>" + programs.folder() + "/said");
  EXPECT_TRUE(disks.UnmountAll("/dev/none").ok());
  EXPECT_EQ(programs.Said(), "/data\n/home/a b\n/data\n");
  programs.Add("findmnt", "exit 1");  // none
  EXPECT_TRUE(disks.UnmountAll("/dev/none").ok());
  programs.Add("umount", "echo 'target is busy' >&2; exit 32");
  programs.Add("findmnt", "echo /data");
  EXPECT_NE(disks.UnmountAll("/dev/none").message().find("target is busy"), absl::string_view::npos);
}

TEST(HostDisks, TakesNoFailureForNoMount) {
  const HostPrograms programs;
  const HostDisks disks("/dev");
  for (const char* failure : {"echo 'findmnt: cannot read /proc/self/mountinfo' >&2; exit 1", "exit 2", "kill -9 $$"}) {
    programs.Add("findmnt", failure);
    EXPECT_FALSE(disks.MountsOf("/dev/none").ok()) << failure;
    EXPECT_FALSE(disks.UnmountAll("/dev/none").ok()) << failure;
    EXPECT_FALSE(disks.MountedAt("/data").ok()) << failure;
  }
}

TEST(HostDisks, SeesMountsOfContainers) {
  std::string folder = testing::TempDir() + "millrace-proc-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto add = [&folder](const std::string& process, const std::string& space, const std::string& table) {
    fs::create_directories(fs::path(folder) / process / "ns");
    fs::create_symlink("mnt:[" + space + "]", fs::path(folder) / process / "ns/mnt");
    std::ofstream(fs::path(folder) / process / "mountinfo") << table;
  };
  const std::string mounted = "36 35 259:3 / /data rw,noatime master:1 - ext4 /dev/nvme1n1 rw\n";
  add("self", "1", mounted);
  add("1", "1", mounted);  // the same as ours
  add("70", "2", "36 35 259:30 / /data rw - ext4 /dev/nvme9n1 rw\n37 35 0:4 / /proc rw - proc proc rw\n");
  EXPECT_EQ(MountedByOthers(folder, makedev(259, 3)), "");
  add("81", "3", "37 35 0:4 / /proc rw - proc proc rw\n38 35 259:3 /sub /mnt rw - ext4 /dev/nvme1n1 rw\n");
  EXPECT_EQ(MountedByOthers(folder, makedev(259, 3)), "81 at /mnt");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
