#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace millrace
