#include "diagnose/host_speed.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

TEST(HostSpeed, MemoryIsCopiedAndCompared) {
  for (const int threads : {1, 3}) {
    const absl::StatusOr<MemorySpeed> speed = MeasureMemory(threads, 4 << 20, std::chrono::milliseconds(1));
    ASSERT_TRUE(speed.ok());
    EXPECT_TRUE(speed->sound);
    EXPECT_GT(speed->bytes_per_second, 0);
  }
}

TEST(HostSpeed, ADiskIsWrittenReadAndLeftEmpty) {
  const TempFolder folder;
  const absl::StatusOr<DiskSpeed> speed = MeasureDisk(folder.path(), 5'000'000, std::chrono::seconds(60));
  ASSERT_TRUE(speed.ok()) << speed.status();
  EXPECT_EQ(speed->bytes, 5'000'000u);
  EXPECT_GT(speed->write_bytes_per_second, 0);
  EXPECT_GT(speed->read_bytes_per_second, 0);
  EXPECT_GT(speed->sync_ms, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  // A slow disk is not written for longer than it is given.
  EXPECT_EQ(MeasureDisk(folder.path(), uint64_t{1} << 40, std::chrono::milliseconds(0))->bytes, uint64_t{4} << 20);
}

TEST(HostSpeed, ErrorsNameTheFolder) {
  const absl::StatusOr<DiskSpeed> missing = MeasureDisk("/nowhere/at/all", 1 << 20, std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_NE(missing.status().message().find("/nowhere/at/all"), std::string::npos);
  EXPECT_TRUE(absl::IsNotFound(MeasureSpace("/nowhere/at/all").status()));
  EXPECT_FALSE(MeasureDisk("/proc", 1 << 20, std::chrono::seconds(1)).ok());
  const TempFolder folder;
  const absl::StatusOr<DiskSpace> space = MeasureSpace(folder.path());
  ASSERT_TRUE(space.ok());
  EXPECT_GT(space->free_bytes, 0u);
  EXPECT_LE(space->free_bytes, space->total_bytes);
}

}  // namespace
}  // namespace millrace
