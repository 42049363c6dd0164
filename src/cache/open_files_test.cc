#include "cache/open_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <string>

#include "base/unique_fd.h"

namespace millrace {
namespace {

class OpenFilesTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSlabBytes = 1 << 20;
  std::shared_ptr<CacheFile> File(int number) {
    return CacheFile::InMemory(memory_.get(), next_++ * kSlabBytes, {"store", std::to_string(number), "etag"}, 10'000);
  }
  std::shared_ptr<CacheFile> Slab(int objects) {
    const SmallObject any = *SmallObject::Of({"store", "key", "etag"}, 0);
    std::shared_ptr<CacheFile> slab = CacheFile::InMemory(memory_.get(), next_++ * kSlabBytes, any.slab, kSlabBytes);
    for (int i = 0; i < objects; ++i) {
      const SmallObject small = *SmallObject::Of({"store", std::to_string(i), "etag"}, 0);
      const auto take = [](uint64_t) { return absl::OkStatus(); };
      const auto give_back = [](uint64_t) {};
      EXPECT_TRUE(slab->AddSmall(small, AsBytes(small.head), {}, {take, give_back}).ok());
    }
    return slab;
  }
  // Returns those of "0" to "9" that are open.
  static std::string Opened(const OpenFiles& files) {
    std::string names;
    for (int i = 0; i < 10; ++i) {
      if (files.Peek(std::to_string(i)) != nullptr) names += std::to_string(i);
    }
    return names;
  }

  const UniqueFd memory_{memfd_create("test", MFD_CLOEXEC)};
  uint64_t next_ = 0;
};

TEST_F(OpenFilesTest, SlabsDoNotCloseFiles) {
  OpenFiles files({OpenFiles::Bound{3, 100}, OpenFiles::Bound{4, SIZE_MAX}, OpenFiles::Bound{4, SIZE_MAX}});
  for (int i = 0; i < 4; ++i) files.Add(std::to_string(i), File(i), true);
  EXPECT_EQ(Opened(files), "123");
  for (int i = 4; i < 9; ++i) files.Add(std::to_string(i), Slab(0), true);
  EXPECT_EQ(Opened(files), "1235678");
  EXPECT_NE(files.Find("1", true), nullptr);
  files.Add("9", File(9), true);
  EXPECT_EQ(Opened(files), "1356789") << "the last used ones stay";
}

TEST_F(OpenFilesTest, ForeignSlabsHaveABoundOfTheirObjects) {
  OpenFiles files({OpenFiles::Bound{}, OpenFiles::Bound{}, OpenFiles::Bound{100, 25}});
  for (int i = 0; i < 3; ++i) files.Add(std::to_string(i), Slab(10), false);
  EXPECT_EQ(Opened(files), "12");
  EXPECT_NE(files.Find("1", true), nullptr);
  for (int i = 3; i < 5; ++i) files.Add(std::to_string(i), Slab(10), false);
  EXPECT_EQ(Opened(files), "134") << "one that is wanted is no foreign one";
  files.Add("5", Slab(50), false);
  EXPECT_EQ(Opened(files), "15") << "one is open, however large it is";
  const std::shared_ptr<CacheFile> slab = files.Peek("5");
  files.Forget("5", Slab(0));
  EXPECT_EQ(files.Peek("5"), slab) << "another one of that name";
  files.Forget("5", slab);
  EXPECT_EQ(Opened(files), "1");
}

}  // namespace
}  // namespace millrace
